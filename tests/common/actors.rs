//! Other users, played by threads of this process, and other processes.

use super::calls::{check, check_long};
use std::io;
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;

/// A user, as a thread of this process plays it.
#[derive(Clone, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub umask: u32,
}

impl User {
    /// A user with a group of the same number, nothing else, and umask 022.
    pub fn new(id: u32) -> Self {
        Self {
            uid: id,
            gid: id,
            groups: Vec::new(),
            umask: 0o022,
        }
    }

    pub fn groups(mut self, groups: &[u32]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    pub fn umask(mut self, umask: u32) -> Self {
        self.umask = umask;
        self
    }

    /// Runs `body` in a thread of its own with this user's identity and umask.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                become_user(self).unwrap();
                body()
            });
            match thread.join() {
                Ok(value) => value,
                Err(panic) => resume_unwind(panic),
            }
        })
    }
}

/// Root with a umask of its own.
pub fn with_umask<T: Send>(umask: u32, body: impl FnOnce() -> T + Send) -> T {
    User {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        umask,
    }
    .run(body)
}

/// Changes the identity of the calling thread only, for good.
fn become_user(user: &User) -> io::Result<()> {
    // SAFETY: no pointer but the one to `groups`, which has as many entries as is said; the raw
    // calls change this thread alone, unlike those of the C library.
    unsafe {
        check(libc::unshare(libc::CLONE_FS))?;
        libc::umask(user.umask);
        check_long(libc::syscall(
            libc::SYS_setgroups,
            user.groups.len(),
            user.groups.as_ptr(),
        ))?;
        check_long(libc::syscall(
            libc::SYS_setresgid,
            user.gid,
            user.gid,
            user.gid,
        ))?;
        check_long(libc::syscall(
            libc::SYS_setresuid,
            user.uid,
            user.uid,
            user.uid,
        ))?;
    }
    Ok(())
}

/// Runs `body` in a process of its own; what it returned (0..=255). It must not touch the locks of
/// this process (printing, panicking), only make system calls.
pub fn in_child(body: impl FnOnce() -> u8) -> u8 {
    Child::start(&[], body).wait()
}

/// The errno of a system call in a child, as its exit code; 0 when it succeeded.
pub fn code<T>(result: io::Result<T>) -> u8 {
    match result {
        Ok(_) => 0,
        Err(error) => u8::try_from(error.raw_os_error().unwrap_or(255)).unwrap_or(255),
    }
}

/// A child process that runs a function.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
}

impl Child {
    /// Starts it with the standard descriptors and those to `keep`.
    pub fn start(keep: &[&dyn AsRawFd], body: impl FnOnce() -> u8) -> Self {
        // SAFETY: the child runs `body` (system calls only, as documented) and ends by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
        if pid == 0 {
            // What other tests of this process have open must not live on in this child.
            let mut from = 3;
            let mut kept: Vec<u32> = keep
                .iter()
                .map(|fd| fd.as_raw_fd().cast_unsigned())
                .collect();
            kept.sort_unstable();
            for fd in kept {
                if fd > from {
                    // SAFETY: no pointer; the closed descriptors are not used in this process.
                    unsafe { libc::close_range(from, fd - 1, 0) };
                }
                from = fd + 1;
            }
            // SAFETY: as above.
            unsafe { libc::close_range(from, u32::MAX, 0) };
            let code = body();
            // SAFETY: ends this process only.
            unsafe { libc::_exit(i32::from(code)) };
        }
        Self { pid }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has ended by now, without waiting.
    pub fn ended(&self) -> bool {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is a whole siginfo, zeroed, and the call leaves the child waitable.
        unsafe {
            libc::waitid(
                libc::P_PID,
                self.pid.cast_unsigned(),
                info.as_mut_ptr(),
                libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
            );
            info.assume_init().si_pid() != 0
        }
    }

    /// Waits for its end; its exit code, 255 when a signal ended it.
    pub fn wait(self) -> u8 {
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        let got = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!(got, self.pid);
        if libc::WIFEXITED(status) {
            u8::try_from(libc::WEXITSTATUS(status)).unwrap()
        } else {
            255
        }
    }

    /// Ends it with SIGKILL.
    pub fn kill(self) {
        // SAFETY: the child is ours and not yet waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        self.wait();
    }
}
