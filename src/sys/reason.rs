//! What a failed system call says to a person.

use nix::errno::Errno;
use std::fmt;
use std::io;

/// The reason in words, without the number that `io::Error` puts behind them.
#[must_use]
pub fn reason(error: &io::Error) -> Reason<'_> {
    Reason(error)
}

/// See [`reason`].
#[derive(Clone, Copy, Debug)]
pub struct Reason<'a>(&'a io::Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self
            .0
            .raw_os_error()
            .map(|code| (code, Errno::from_raw(code)))
        {
            Some((code, Errno::UnknownErrno)) => write!(f, "error {code}"),
            Some((_, errno)) => f.write_str(errno.desc()),
            // Not of a system call, so that it carries no number.
            None => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_error_is_left_out() {
        let of = |code| reason(&io::Error::from_raw_os_error(code)).to_string();
        assert_eq!(of(libc::ENOENT), "No such file or directory");
        assert_eq!(of(9999), "error 9999");
        assert_eq!(
            reason(&io::Error::other("as it is")).to_string(),
            "as it is"
        );
    }
}
