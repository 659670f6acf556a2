//! Acting as the caller of a request, one thread at a time.
//!
//! Linux keeps credentials, capabilities and (after `unshare(CLONE_FS)`) the umask per thread, but
//! the C library changes the ids of all threads at once; so everything here is a raw call on the
//! calling thread.
//!
//! Invariants:
//! - a thread that serves requests first comes into its **base state**: the process's own ids, an
//!   umask of its own, `CAP_FSETID` and `CAP_SYS_RESOURCE` not effective (so that set-id bits go
//!   where a caller without the right writes, and quotas and reserved space hold), and
//!   `SECBIT_NO_SETUID_FIXUP`, so that changing the filesystem uid keeps the other capabilities
//!   (the kernel has checked the caller's permissions already);
//! - whatever differs from the base state is held by a guard that restores it on drop and cannot
//!   leave its thread, so it never leaks to the next request.

use super::{check, reason};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;

const FSETID: u32 = libc_cap::CAP_FSETID;
const HELD_BACK: [u32; 2] = [libc_cap::CAP_FSETID, libc_cap::CAP_SYS_RESOURCE];

/// From linux/capability.h and linux/securebits.h.
mod libc_cap {
    pub(super) const CAP_SETGID: u32 = 6;
    pub(super) const CAP_SETUID: u32 = 7;
    pub(super) const CAP_FSETID: u32 = 4;
    pub(super) const CAP_DAC_READ_SEARCH: u32 = 2;
    pub(super) const CAP_SYS_ADMIN: u32 = 21;
    pub(super) const CAP_SYS_RESOURCE: u32 = 24;
    pub(super) const VERSION_3: u32 = 0x2008_0522;
    pub(super) const NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The three capability sets of a thread.
#[derive(Clone, Copy, Default)]
struct Capabilities([CapData; 2]);

impl Capabilities {
    fn of_this_thread() -> io::Result<Self> {
        let mut header = CapHeader {
            version: libc_cap::VERSION_3,
            pid: 0,
        };
        let mut data = Self::default();
        // SAFETY: version 3 has two data elements; both structures outlive the call.
        check(unsafe {
            libc::syscall(libc::SYS_capget, &raw mut header, data.0.as_mut_ptr()) as libc::c_int
        })?;
        Ok(data)
    }

    fn apply(&self) -> io::Result<()> {
        let mut header = CapHeader {
            version: libc_cap::VERSION_3,
            pid: 0,
        };
        // SAFETY: as above; the call changes this thread only.
        check(unsafe {
            libc::syscall(libc::SYS_capset, &raw mut header, self.0.as_ptr()) as libc::c_int
        })?;
        Ok(())
    }

    fn has(&self, capability: u32) -> bool {
        self.0
            .get((capability / 32) as usize)
            .is_some_and(|data| data.effective & (1 << (capability % 32)) != 0)
    }

    fn set(&mut self, capability: u32, on: bool) {
        if let Some(data) = self.0.get_mut((capability / 32) as usize) {
            let bit = (1 << (capability % 32)) & data.permitted;
            if on {
                data.effective |= bit;
            } else {
                data.effective &= !bit;
            }
        }
    }
}

/// What this process may do that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Take on the ids of callers (`CAP_SETUID`, `CAP_SETGID`).
    pub switch_ids: bool,
    /// Open by handle (`CAP_DAC_READ_SEARCH`).
    pub open_by_handle: bool,
    /// Administer: kernel passthrough, flushing removals (`CAP_SYS_ADMIN`).
    pub administer: bool,
}

/// The rights of the calling thread.
#[must_use]
pub fn rights() -> Rights {
    let capabilities = Capabilities::of_this_thread().unwrap_or_default();
    Rights {
        switch_ids: capabilities.has(libc_cap::CAP_SETUID)
            && capabilities.has(libc_cap::CAP_SETGID),
        open_by_handle: capabilities.has(libc_cap::CAP_DAC_READ_SEARCH),
        administer: capabilities.has(libc_cap::CAP_SYS_ADMIN),
    }
}

/// The base state of one thread.
#[derive(Clone, Copy)]
struct Base {
    uid: u32,
    gid: u32,
    capabilities: Capabilities,
    switch: bool,
}

thread_local! {
    static BASE: Cell<Option<Base>> = const { Cell::new(None) };
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Brings the calling thread into its base state, once.
pub fn settle() {
    let _ = base();
}

fn base() -> Base {
    if let Some(base) = BASE.get() {
        return base;
    }
    let base = make_base();
    BASE.set(Some(base));
    base
}

fn make_base() -> Base {
    // SAFETY: no memory is passed; both always succeed.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mut capabilities = Capabilities::of_this_thread().unwrap_or_default();
    let switch = capabilities.has(libc_cap::CAP_SETUID) && capabilities.has(libc_cap::CAP_SETGID);
    if switch {
        // SAFETY: no memory is passed. Where the bit may not be set, changing the filesystem
        // uid loses the file capabilities until it is changed back, and the backing filesystem
        // checks the caller's permissions once more.
        unsafe {
            let bits = libc::prctl(libc::PR_GET_SECUREBITS);
            if bits >= 0 {
                libc::prctl(
                    libc::PR_SET_SECUREBITS,
                    bits as libc::c_ulong | libc_cap::NO_SETUID_FIXUP,
                );
            }
        }
    }
    let mut reduced = capabilities;
    for capability in HELD_BACK {
        reduced.set(capability, false);
    }
    // Giving up is always permitted; were it not, the base state is what the thread has.
    if reduced.apply().is_ok() {
        capabilities = reduced;
    }
    Base {
        uid,
        gid,
        capabilities,
        switch,
    }
}

/// Sets the umask of the calling thread alone. There is nothing to restore: whoever creates sets
/// it first.
///
/// # Errors
/// As unshare(2) says; the umask is then as it was.
pub fn set_umask(mask: u32) -> io::Result<()> {
    let mask = mask & 0o777;
    match UMASK.get() {
        Some(current) if current == mask => return Ok(()),
        Some(_) => {}
        None => {
            // SAFETY: no memory is passed. From here on umask, root and working directory of
            // this thread are its own.
            check(unsafe { libc::unshare(libc::CLONE_FS) })?;
        }
    }
    // SAFETY: always succeeds.
    unsafe { libc::umask(mask) };
    UMASK.set(Some(mask));
    Ok(())
}

/// The thread acts with the filesystem ids of a caller until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct AsCaller {
    base: Option<(u32, u32)>,
    groups: Option<Vec<u32>>,
    // A guard must end on the thread that it changed.
    thread: PhantomData<*const ()>,
}

impl AsCaller {
    /// Takes on `uid` and `gid`. Does nothing where the process may not, or already has them.
    pub fn new(uid: u32, gid: u32) -> Self {
        let base = base();
        let other = base.switch && (uid, gid) != (base.uid, base.gid);
        if other {
            set_ids(uid, gid);
        }
        Self {
            base: other.then_some((base.uid, base.gid)),
            groups: None,
            thread: PhantomData,
        }
    }

    /// The same, with the caller's supplementary groups: they decide whether a set-group-id bit
    /// may stay.
    ///
    /// # Errors
    /// As setgroups(2) says.
    pub fn with_groups(uid: u32, gid: u32, groups: &[u32]) -> io::Result<Self> {
        let base = base();
        let previous = if base.switch {
            let previous = groups_of_this_thread()?;
            set_groups(groups)?;
            Some(previous)
        } else {
            None
        };
        let mut guard = Self::new(uid, gid);
        guard.groups = previous;
        Ok(guard)
    }
}

impl Drop for AsCaller {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.base {
            set_ids(uid, gid);
        }
        if let Some(groups) = &self.groups
            && let Err(error) = set_groups(groups)
        {
            log::error!("cannot give up a caller's groups: {}", reason(&error));
        }
    }
}

fn set_ids(uid: u32, gid: u32) {
    // SAFETY: no memory is passed; the calls change this thread only and succeed for whoever
    // has CAP_SETUID and CAP_SETGID, which the caller has checked.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
}

fn groups_of_this_thread() -> io::Result<Vec<u32>> {
    // SAFETY: with a size of 0 nothing is written.
    let count = check(unsafe { libc::getgroups(0, std::ptr::null_mut()) })?;
    let mut groups = vec![0; count as usize];
    // SAFETY: the list has room for as many groups as stated and outlives the call.
    let count = check(unsafe { libc::getgroups(count, groups.as_mut_ptr()) })?;
    groups.truncate(count as usize);
    Ok(groups)
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the list is as long as stated and outlives the call, which, made directly, changes
    // this thread only.
    check(unsafe {
        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) as libc::c_int
    })?;
    Ok(())
}

/// The thread may keep set-id bits (`CAP_FSETID`) until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct KeepSetId {
    raised: bool,
    thread: PhantomData<*const ()>,
}

impl KeepSetId {
    /// Raises the capability if `wanted` and permitted.
    pub fn new(wanted: bool) -> Self {
        let base = base();
        let raised = wanted && {
            let mut raised = base.capabilities;
            raised.set(FSETID, true);
            raised.apply().is_ok()
        };
        Self {
            raised,
            thread: PhantomData,
        }
    }
}

impl Drop for KeepSetId {
    fn drop(&mut self) {
        if self.raised
            && let Err(error) = base().capabilities.apply()
        {
            log::error!("cannot give up CAP_FSETID: {}", reason(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_guard_acts_as_the_caller_and_restores() {
        if !rights().switch_ids {
            eprintln!("SKIPPED: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                settle();
                assert!(!Capabilities::of_this_thread().unwrap().has(FSETID));
                {
                    let _caller = AsCaller::with_groups(12, 34, &[56]).unwrap();
                    set_umask(0o077).unwrap();
                    // The directory belongs to root: the other capabilities are still there.
                    std::fs::write(dir.path().join("theirs"), "").unwrap();
                    assert_eq!(groups_of_this_thread().unwrap(), [56]);
                }
                set_umask(0o022).unwrap();
                std::fs::write(dir.path().join("ours"), "").unwrap();
                {
                    let _keep = KeepSetId::new(true);
                    assert!(Capabilities::of_this_thread().unwrap().has(FSETID));
                }
                assert!(!Capabilities::of_this_thread().unwrap().has(FSETID));
            });
        });
        let theirs = std::fs::metadata(dir.path().join("theirs")).unwrap();
        assert_eq!(
            (theirs.uid(), theirs.gid(), theirs.mode() & 0o777),
            (12, 34, 0o600)
        );
        let ours = std::fs::metadata(dir.path().join("ours")).unwrap();
        assert_eq!((ours.uid(), ours.gid(), ours.mode() & 0o777), (0, 0, 0o644));
        // Other threads have kept everything.
        assert!(Capabilities::of_this_thread().unwrap().has(FSETID));
    }
}
