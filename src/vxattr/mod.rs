//! vxattr
