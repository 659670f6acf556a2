//! A sharelens mount of a test's own.

use super::{mount_type, run, sharelens, try_run};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a mount may take to appear or to go.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mount to be made.
#[derive(Clone, Debug)]
pub struct MountedBuilder {
    source: PathBuf,
    point: PathBuf,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    program: PathBuf,
    wrapper: Vec<String>,
}

impl MountedBuilder {
    /// More mount options, comma separated.
    pub fn options(mut self, options: &str) -> Self {
        if !options.is_empty() {
            self.options.push(options.to_owned());
        }
        self
    }

    /// An environment variable of the daemon.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Another build of the program.
    pub fn program(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.program);
        self
    }

    /// A program that runs the daemon (e.g. `setpriv --reuid 1000 ...`), with its arguments.
    pub fn under(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Mounts, and returns when the root of the mount has answered; panics with what the daemon
    /// said when it does not come up.
    pub fn mount(self) -> Mounted {
        self.try_mount()
            .unwrap_or_else(|said| panic!("sharelens mount failed: {said}"))
    }

    /// As [`MountedBuilder::mount`]; what the daemon said when it does not come up.
    pub fn try_mount(self) -> Result<Mounted, String> {
        let log = log_path(&self.point);
        let mut words: Vec<String> = self.wrapper.clone();
        words.push(self.program.to_str().unwrap().to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["mount", "-f"]);
        if !self.options.is_empty() {
            command.args(["-o", &self.options.join(",")]);
        }
        command
            .arg(&self.source)
            .arg(&self.point)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        let before = mount_count(&self.point);
        let mut daemon = command.spawn().unwrap();
        let started = Instant::now();
        loop {
            if let Some(status) = daemon.try_wait().unwrap() {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("{status}: {said}"));
            }
            if mount_count(&self.point) > before {
                break;
            }
            if started.elapsed() > PATIENCE {
                let _ = daemon.kill();
                return Err(format!("not mounted after {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mounted = Mounted {
            source: self.source,
            point: self.point,
            log,
            daemon: Some(daemon),
        };
        let answered = try_run(
            "timeout",
            ["20".as_ref(), "stat".as_ref(), mounted.point.as_os_str()],
        );
        if answered.ok() {
            Ok(mounted)
        } else {
            Err(format!("{}{}", answered.stderr, mounted.said()))
        }
    }
}

/// A sharelens mount; unmounted on drop.
#[derive(Debug)]
pub struct Mounted {
    source: PathBuf,
    point: PathBuf,
    log: PathBuf,
    daemon: Option<Child>,
}

impl Mounted {
    /// Shows `source` at `point`, which is made when missing. As root, with `allow_other` only if
    /// asked for.
    pub fn at(source: &Path, point: &Path) -> MountedBuilder {
        let _ = std::fs::create_dir_all(point);
        MountedBuilder {
            source: source.to_owned(),
            point: point.to_owned(),
            options: Vec::new(),
            environment: Vec::new(),
            program: sharelens(),
            wrapper: Vec::new(),
        }
    }

    /// Covers `source` with its own view.
    pub fn in_place(source: &Path) -> MountedBuilder {
        Self::at(source, source)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// The source as it was given.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The daemon's process id.
    pub fn pid(&self) -> i32 {
        self.daemon
            .as_ref()
            .map(|daemon| i32::try_from(daemon.id()).unwrap())
            .unwrap()
    }

    /// What the daemon has written to its standard error so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits for the daemon to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let mut daemon = self.daemon.take().unwrap();
        wait(&mut daemon).unwrap_or_else(|| {
            let _ = daemon.kill();
            panic!("the daemon did not end within {PATIENCE:?}")
        })
    }

    /// Unmounts as SIGTERM does, and checks that nothing is left.
    pub fn unmount(mut self) -> ExitStatus {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        let status = self.wait();
        assert_ne!(mount_type(&self.point).as_deref(), Some("fuse.sharelens"));
        status
    }

    /// Kills the daemon without warning; the mount stays behind, dead.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the daemon of {:?} said:\n{}", self.point, self.said());
        }
        if let Some(mut daemon) = self.daemon.take() {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(daemon.id()).unwrap());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            if wait(&mut daemon).is_none() {
                let _ = daemon.kill();
                let _ = daemon.wait();
            }
        }
        if mount_type(&self.point).is_some_and(|kind| kind.starts_with("fuse")) {
            let _ = try_run("umount", ["-l".as_ref(), self.point.as_os_str()]);
        }
        let _ = std::fs::remove_file(&self.log);
    }
}

fn wait(daemon: &mut Child) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Ok(Some(status)) = daemon.try_wait() {
            return Some(status);
        }
        if started.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn mount_count(point: &Path) -> usize {
    super::mounts_below(point)
        .iter()
        .filter(|mounted| mounted.as_path() == point)
        .count()
}

fn log_path(point: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = point.file_name().unwrap_or_default().to_string_lossy();
    PathBuf::from(format!(
        "/tmp/sharelens-test-{}-{count}-{name}.log",
        std::process::id()
    ))
}
