//! sharelens as an ordinary user: mounted through fusermount3, over a tree of the user's own.
//!
//! Root makes the filesystem and a device node that users may open, in a mount namespace of its
//! own, and runs the tests of the module `user` there, as uid 1000. They are ignored otherwise.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Image, Kind, Output, have, output_within, run, sharelens};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const USER: u32 = 1000;
/// The tree to work in, for the tests that run as the user.
const TREE: &str = "SHARELENS_USER_TREE";
/// The program to run there.
const PROGRAM: &str = "SHARELENS_USER_PROGRAM";

/// The directory of the test that needs the kernel to forget its inodes, and the file in it that
/// asks root for that, and is removed when it is done.
const FORGET: &str = "forget";
const PLEASE: &str = "please";

/// Opens /dev/fuse to everybody in this mount namespace and becomes the user.
const BECOME: &str = r#"
mount -t tmpfs -o mode=755 none "$1"
mknod "$1/fuse" c 10 229
chmod 666 "$1/fuse"
mount --bind "$1/fuse" /dev/fuse
shift
exec setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all --reset-env -- "$@"
"#;

fn as_user(image: &Image, tree: &Path, command: &[&str]) -> Output {
    let devices = image.beside("devices");
    let program = image.beside("bin").join("sharelens");
    let mut become_user = Command::new("unshare");
    become_user
        .args(["-m", "--propagation", "private", "sh", "-ec", BECOME, "sh"])
        .arg(&devices)
        .arg("env")
        .arg(format!("{TREE}={}", tree.display()))
        .arg(format!("{PROGRAM}={}", program.display()))
        .args(std::env::var("CI").map(|ci| format!("CI={ci}")).ok())
        .args(command);
    output_within(&mut become_user, Duration::from_secs(500))
}

/// A filesystem with a tree that belongs to the user, and the programs where the user can run
/// them. `None` where this machine cannot.
fn prepared(kind: Kind) -> Option<(Image, std::path::PathBuf)> {
    if !["setpriv", "unshare", "fusermount3"]
        .iter()
        .all(|program| have(program))
    {
        return None;
    }
    let image = Image::of(kind).size_mib(1024).make()?;
    let bin = image.beside("bin");
    for (from, name) in [
        (sharelens(), "sharelens"),
        (std::env::current_exe().unwrap(), "tests"),
    ] {
        let to = bin.join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let tree = image.path().join("tree");
    fs::create_dir(&tree).unwrap();
    chown(&tree, Some(USER), Some(USER)).unwrap();
    Some((image, tree))
}

fn all_tests_pass_as_the_user(kind: Kind) {
    let Some((image, tree)) = prepared(kind) else {
        return;
    };
    let tests = image.beside("bin").join("tests");
    let done = Arc::new(AtomicBool::new(false));
    let forgetting = {
        let (done, please) = (Arc::clone(&done), tree.join(FORGET).join(PLEASE));
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                if please.exists() {
                    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
                    fs::remove_file(&please).unwrap();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        })
    };
    let said = as_user(
        &image,
        &tree,
        &[
            tests.to_str().unwrap(),
            "--ignored",
            "--nocapture",
            "--test-threads=2",
            "user::",
        ],
    );
    done.store(true, Ordering::Relaxed);
    forgetting.join().unwrap();
    assert!(said.ok(), "as the user:\n{}{}", said.stdout, said.stderr);
    assert!(
        said.stdout.contains(" passed; 0 failed; 0 ignored") && !said.stdout.contains(" 0 passed"),
        "{}",
        said.stdout
    );
}

#[test]
fn everything_works_for_an_ordinary_user_on_xfs() {
    all_tests_pass_as_the_user(Kind::Xfs);
}

#[test]
fn everything_works_for_an_ordinary_user_on_btrfs() {
    all_tests_pass_as_the_user(Kind::Btrfs);
}

#[test]
fn doctor_tells_an_ordinary_user_of_every_limit_and_its_remedy() {
    let Some((image, tree)) = prepared(Kind::Xfs) else {
        return;
    };
    let program = image.beside("bin").join("sharelens");
    let said = as_user(
        &image,
        &tree,
        &[
            program.to_str().unwrap(),
            "doctor",
            "--json",
            tree.to_str().unwrap(),
        ],
    );
    assert!(said.ok(), "{said:?}");
    let findings: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let of = |what: &str| {
        findings
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["what"] == what)
            .unwrap_or_else(|| panic!("nothing about {what}"))
    };
    assert_eq!(of("/dev/fuse")["verdict"], "good");
    let mounting = of("mounting")["found"].as_str().unwrap();
    assert!(mounting.starts_with("through fusermount3"), "{mounting}");
    for what in [
        "mounting",
        "passthrough I/O",
        "file handles",
        "removal flush (XFS)",
        "other users",
        "fanotify",
        "watching this filesystem",
    ] {
        assert_eq!(of(what)["verdict"], "limited", "{what}");
        assert!(!of(what)["remedy"].as_str().unwrap().is_empty(), "{what}");
    }
}

#[test]
fn the_user_of_these_tests_is_none_with_privileges() {
    let Some((image, tree)) = prepared(Kind::Xfs) else {
        return;
    };
    let said = as_user(
        &image,
        &tree,
        &["sh", "-c", "id -u; grep CapEff /proc/self/status"],
    );
    assert!(said.ok(), "{said:?}");
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    assert_eq!(words, ["1000", "CapEff:", "0000000000000000"]);
    // What root sees of the machine is as before.
    assert!(
        run("findmnt", ["-no", "TARGET"])
            .lines()
            .all(|line| !line.contains("/dev/fuse"))
    );
}

/// Run as the user, by the tests above.
mod user {
    use super::common::files::{asked, clone, content, number, text, write_at};
    use super::common::{Mounted, MountedBuilder, Numbers, Scratch, mount_type, raw, truth};
    use super::{PROGRAM, TREE};
    use nix::fcntl::{AT_FDCWD, FallocateFlags, RenameFlags, fallocate, renameat2};
    use nix::sys::stat::Mode;
    use nix::unistd::{Whence, lseek64};
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::fs::{self, File, OpenOptions};
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::{Duration, Instant};

    const MIB: usize = 1 << 20;

    /// A directory of this test's own in the tree.
    fn source(name: &str) -> PathBuf {
        assert!(
            !nix::unistd::geteuid().is_root(),
            "run by root's tests, as an ordinary user"
        );
        let dir = PathBuf::from(std::env::var_os(TREE).unwrap()).join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn program() -> PathBuf {
        PathBuf::from(std::env::var_os(PROGRAM).unwrap())
    }

    fn mount(source: &Path, scratch: &Scratch, options: &str) -> Mounted {
        builder(Mounted::at(source, &scratch.dir("view")))
            .options(options)
            .mount()
    }

    fn builder(builder: MountedBuilder) -> MountedBuilder {
        builder.program(&program())
    }

    fn sh(dir: &Path, script: &str) -> String {
        let said = super::common::output(
            Command::new("sh")
                .args(["-ec", script])
                .current_dir(dir)
                .env("HOME", dir)
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_SYSTEM", "/dev/null")
                .env("GIT_AUTHOR_NAME", "A")
                .env("GIT_AUTHOR_EMAIL", "a@example.com")
                .env("GIT_COMMITTER_NAME", "A")
                .env("GIT_COMMITTER_EMAIL", "a@example.com"),
        );
        assert!(said.ok(), "{script}\n{said:?}");
        said.stdout
    }

    fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
        result.unwrap_err().raw_os_error().unwrap()
    }

    /// Waits for the background removals that only root can carry out at will.
    fn becomes(path: &Path, exclusive: u64) {
        let started = Instant::now();
        loop {
            let got = number(path, "exclusive_bytes").unwrap();
            if got == exclusive {
                return;
            }
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "{path:?} has {got} exclusive bytes, not {exclusive}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn every_attribute_of_a_file_is_what_fiemap_says() {
        let source = source("attributes");
        fs::write(source.join("a"), content(1, 3 * MIB)).unwrap();
        clone(&source.join("a"), &source.join("b"));
        write_at(&source.join("b"), 0, &content(2, 65536));
        let scratch = Scratch::new("user-attributes");
        let mounted = mount(&source, &scratch, "");
        for name in ["a", "b"] {
            let (below, above) = (source.join(name), mounted.path().join(name));
            let expected = truth::numbers(&below);
            assert_eq!(asked(&above).unwrap(), expected);
            // On btrfs an item that is still referenced in part stays shared as a whole.
            assert!(expected.shared_bytes >= (3 * MIB - 65536) as u64);
            for (attribute, value) in [
                ("bytes", expected.bytes),
                ("shared_bytes", expected.shared_bytes),
                ("exclusive_bytes", expected.exclusive_bytes()),
                ("extents", expected.extents),
                ("shared_extents", expected.shared_extents),
                ("may_share", 1),
            ] {
                assert_eq!(number(&above, attribute).unwrap(), value, "{attribute}");
            }
            let json: serde_json::Value =
                serde_json::from_str(&text(&above, "json").unwrap()).unwrap();
            assert_eq!(json["shared_bytes"], expected.shared_bytes);
            let map = text(&above, "map").unwrap();
            let pieces: Vec<[u64; 3]> = truth::map(&below)
                .iter()
                .map(|piece| [piece.logical, piece.physical, piece.length])
                .collect();
            let shown: Vec<[u64; 3]> = map
                .lines()
                .map(|line| {
                    let mut words = line.split(' ').map(|word| word.parse().unwrap_or(u64::MAX));
                    std::array::from_fn(|_| words.next().unwrap())
                })
                .collect();
            assert_eq!(shown, pieces);
        }
        let file = mounted.path().join("a");
        assert_eq!(
            errno(raw::getxattr(&file, "user.reflink.none")),
            libc::ENODATA
        );
        assert_eq!(
            errno(raw::setxattr(&file, "user.reflink.bytes", b"1")),
            libc::EPERM
        );
        assert_eq!(
            errno(raw::removexattr(&file, "user.reflink.bytes")),
            libc::EPERM
        );
        assert_eq!(
            errno(raw::getxattr_sized(&file, "user.reflink.bytes", 1)),
            libc::ERANGE
        );
        let length = raw::getxattr_sized(&file, "user.reflink.bytes", 0).unwrap();
        assert_eq!(length, text(&file, "bytes").unwrap().len());
        assert!(raw::listxattr(&file).unwrap().is_empty());
        let stats: serde_json::Value =
            serde_json::from_str(&text(mounted.path(), "stats").unwrap()).unwrap();
        assert_eq!(stats["kernel_passthrough"], false);
        assert_eq!(stats["watching"], false);
        assert_eq!(
            text(mounted.path(), "version").unwrap(),
            env!("CARGO_PKG_VERSION")
        );
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn an_answer_follows_every_change_made_through_the_mount() {
        let source = source("changes");
        let scratch = Scratch::new("user-changes");
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        fs::write(view.join("a"), content(1, MIB)).unwrap();
        let check = |name: &str| -> Numbers {
            let answer = asked(&view.join(name)).unwrap();
            assert_eq!(answer, truth::numbers(&source.join(name)), "{name}");
            answer
        };
        assert_eq!(check("a").shared_bytes, 0);
        sh(view, "cp a b");
        assert_eq!(check("a").shared_bytes, MIB as u64);
        assert_eq!(check("b").shared_bytes, MIB as u64);
        write_at(&view.join("b"), 0, &content(2, 65536));
        assert_eq!(check("b").exclusive_bytes(), 65536);
        check("a");
        let b = OpenOptions::new().write(true).open(view.join("b")).unwrap();
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&b, punch, 131_072, 65536).unwrap();
        check("a");
        assert_eq!(check("b").bytes, (MIB - 65536) as u64);
        b.set_len((MIB / 2) as u64).unwrap();
        drop(b);
        check("a");
        let before = check("b").exclusive_bytes();
        fs::remove_file(view.join("a")).unwrap();
        becomes(&view.join("b"), (MIB / 2 - 65536) as u64);
        assert_eq!(before, 65536);
        let said = super::common::output(
            Command::new(program())
                .args(["clone", "b", "c"])
                .current_dir(view),
        );
        assert!(said.ok(), "{said:?}");
        assert_eq!(check("c").exclusive_bytes(), 0);
        fs::rename(view.join("c"), view.join("b")).unwrap();
        becomes(&view.join("b"), (MIB / 2 - 65536) as u64);
    }

    /// Has root make the kernel forget every inode that nothing uses.
    fn kernel_forgets() {
        let please = source(super::FORGET).join(super::PLEASE);
        fs::write(&please, "").unwrap();
        let started = Instant::now();
        while please.exists() {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "root did not answer"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn what_the_kernel_forgets_is_written_back_before_it_stops_counting() {
        let source = source(super::FORGET);
        let scratch = Scratch::new("user-forget");
        fs::write(source.join("a"), content(1, MIB)).unwrap();
        clone(&source.join("a"), &source.join("b"));
        truth::settle(&source);
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        assert_eq!(number(&view.join("a"), "exclusive_bytes").unwrap(), 0);
        assert_eq!(number(&view.join("b"), "exclusive_bytes").unwrap(), 0);
        // Aligned with the item on btrfs, so that nothing of it stays shared.
        write_at(&view.join("b"), 0, &content(2, MIB));
        kernel_forgets();
        assert_eq!(
            number(&view.join("a"), "exclusive_bytes").unwrap(),
            MIB as u64
        );
        assert_eq!(
            asked(&view.join("b")).unwrap(),
            truth::numbers(&source.join("b"))
        );
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn every_operation_does_what_it_does_below() {
        let source = source("operations");
        let scratch = Scratch::new("user-operations");
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        let (a, b) = (view.join("a"), view.join("b"));
        fs::write(&a, b"hello").unwrap();
        fs::create_dir(view.join("d")).unwrap();
        symlink("a", view.join("link")).unwrap();
        fs::hard_link(&a, &b).unwrap();
        assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
        assert_eq!(fs::read_link(view.join("link")).unwrap(), Path::new("a"));
        let meta = fs::metadata(source.join("a")).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1000, 1000));
        assert_eq!(fs::metadata(&a).unwrap().ino(), meta.ino());

        fs::write(view.join("x"), b"x").unwrap();
        let rename = |from: &str, to: &str, how: RenameFlags| {
            renameat2(AT_FDCWD, &view.join(from), AT_FDCWD, &view.join(to), how)
        };
        assert_eq!(
            rename("x", "a", RenameFlags::RENAME_NOREPLACE),
            Err(nix::Error::EEXIST)
        );
        rename("x", "d", RenameFlags::RENAME_EXCHANGE).unwrap();
        assert!(view.join("x").is_dir() && source.join("d").is_file());
        rename("d", "x/y", RenameFlags::empty()).unwrap();
        assert_eq!(fs::read(source.join("x/y")).unwrap(), b"x");
        assert_eq!(errno(fs::remove_dir(view.join("x"))), libc::ENOTEMPTY);
        fs::remove_dir_all(view.join("x")).unwrap();

        fs::set_permissions(&a, fs::Permissions::from_mode(0o2640)).unwrap();
        assert_eq!(
            fs::metadata(source.join("a")).unwrap().mode() & 0o7777,
            0o2640
        );
        assert_eq!(errno(chown(&a, Some(0), None)), libc::EPERM);
        chown(&a, Some(1000), Some(1000)).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&a).unwrap();
        let then = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
        file.set_times(fs::FileTimes::new().set_modified(then))
            .unwrap();
        assert_eq!(fs::metadata(source.join("a")).unwrap().mtime(), 1_000_000);
        file.set_len(1 << 20).unwrap();
        assert_eq!(lseek64(&file, 0, Whence::SeekHole).unwrap(), 4096);
        assert_eq!(
            lseek64(&file, 4096, Whence::SeekData),
            Err(nix::Error::ENXIO)
        );
        fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
        assert_eq!(fs::metadata(source.join("a")).unwrap().len(), 2 << 20);
        file.sync_all().unwrap();
        File::open(view).unwrap().sync_all().unwrap();

        raw::setxattr(&a, "user.mine", b"value").unwrap();
        assert_eq!(
            raw::getxattr(&source.join("a"), "user.mine").unwrap(),
            b"value"
        );
        assert_eq!(raw::listxattr(&a).unwrap(), ["user.mine"]);
        raw::removexattr(&a, "user.mine").unwrap();
        nix::unistd::mkfifo(&view.join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
        let mut names: Vec<String> = fs::read_dir(view)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["a", "b", "link", "pipe"]);
        let space = nix::sys::statvfs::statvfs(view).unwrap();
        assert_eq!(
            space.blocks(),
            nix::sys::statvfs::statvfs(&source).unwrap().blocks()
        );

        fs::remove_file(&b).unwrap();
        let mut open = File::open(&a).unwrap();
        fs::remove_file(&a).unwrap();
        let mut start = [0; 5];
        open.read_exact(&mut start).unwrap();
        assert_eq!(
            &start, b"hello",
            "a removed file can be read until it is closed"
        );
        assert_eq!(errno(File::open(&a)), libc::ENOENT);
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn what_the_user_may_not_do_below_is_refused_through_the_mount() {
        let source = source("permissions");
        let scratch = Scratch::new("user-permissions");
        fs::write(source.join("mine"), "x").unwrap();
        fs::set_permissions(source.join("mine"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::create_dir(source.join("closed")).unwrap();
        fs::set_permissions(source.join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        assert_eq!(errno(fs::read(view.join("mine"))), libc::EACCES);
        assert_eq!(errno(number(&view.join("mine"), "bytes")), libc::EACCES);
        assert_eq!(errno(fs::write(view.join("closed/new"), "x")), libc::EACCES);
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table
            .lines()
            .find(|line| line.contains(view.to_str().unwrap()))
            .unwrap();
        for option in ["nosuid", "nodev", "user_id=1000", "default_permissions"] {
            assert!(line.contains(option), "{option} is not in {line}");
        }
        drop(mounted);
        let _ = fs::set_permissions(source.join("closed"), fs::Permissions::from_mode(0o755));
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn programs_work() {
        let source = source("programs");
        let scratch = Scratch::new("user-programs");
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        sh(
            view,
            "git init -q one; cd one; for i in $(seq 50); do echo $i > f$i; done; git add .; \
             git commit -qm first; cd ..; git clone -q one two; cd two; git fsck --strict 2>/dev/null; \
             [ -z \"$(git status --porcelain)\" ]",
        );
        sh(
            view,
            "mkdir in; head -c 2000000 /dev/urandom > in/big; cp in/big in/clone; ln in/big in/hard; \
             truncate -s 3M in/sparse; tar -cSf t.tar in; mkdir out; tar -xpSf t.tar -C out; diff -r in out/in; \
             rsync -aX in/ copy/; diff -r in copy",
        );
        sh(
            view,
            "sqlite3 db 'pragma journal_mode=wal; create table t(i int);' > /dev/null; \
             for i in $(seq 20); do sqlite3 db \"insert into t values($i);\"; done; \
             [ \"$(sqlite3 db 'select count(*) from t; pragma integrity_check;' | tr '\\n' ' ')\" = '20 ok ' ]",
        );
        sh(
            &source,
            "diff -r in out/in; diff -r in copy; git -C two fsck --strict 2>/dev/null",
        );
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn many_known_files_need_few_descriptors() {
        let source = source("many");
        for dir in 0..20 {
            let dir = source.join(format!("d{dir}"));
            fs::create_dir(&dir).unwrap();
            for file in 0..150 {
                fs::write(dir.join(format!("f{file}")), format!("{file}")).unwrap();
            }
        }
        let scratch = Scratch::new("user-many");
        let mounted = builder(Mounted::at(&source, &scratch.dir("view")))
            .under(&["prlimit", "--nofile=256:256"])
            .mount();
        for turn in 0..2 {
            for dir in 0..20 {
                for file in 0..150 {
                    let path = mounted.path().join(format!("d{dir}/f{file}"));
                    assert_eq!(
                        fs::read_to_string(&path).unwrap(),
                        file.to_string(),
                        "{turn}"
                    );
                    number(&path, "bytes").unwrap();
                }
            }
        }
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn a_mount_in_the_background_ends_by_either_command() {
        let source = source("background");
        fs::write(source.join("file"), content(1, 5000)).unwrap();
        let here = source.to_str().unwrap();
        for ending in [
            vec!["sharelens", "umount", here],
            vec!["fusermount3", "-u", here],
        ] {
            let said = super::common::output(Command::new(program()).args(["mount", here]));
            assert!(said.ok() && said.stderr.is_empty(), "{said:?}");
            assert_eq!(mount_type(&source).as_deref(), Some("fuse.sharelens"));
            assert_eq!(number(&source.join("file"), "bytes").unwrap(), 8192);
            // Over itself, too, the scan reads what is below the mount.
            assert_eq!(number(&source, "bytes").unwrap(), 8192);
            let again = super::common::output(Command::new(program()).args(["mount", here]));
            assert!(
                again.stderr.contains("is already mounted by sharelens"),
                "{again:?}"
            );
            let first = if ending[0] == "sharelens" {
                program()
            } else {
                ending[0].into()
            };
            let said = super::common::output(Command::new(first).args(&ending[1..]));
            assert!(said.ok(), "{ending:?}: {said:?}");
            assert_eq!(mount_type(&source), None);
            assert_eq!(fs::read(source.join("file")).unwrap(), content(1, 5000));
        }
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn what_needs_root_is_refused_with_its_remedy() {
        let source = source("refusals");
        let scratch = Scratch::new("user-refusals");
        let (here, view) = (source.to_str().unwrap(), scratch.dir("view"));
        for (options, sentence) in [
            ("io=passthrough", "use io=auto"),
            (
                "allow_other",
                "add the line user_allow_other to /etc/fuse.conf",
            ),
        ] {
            let permitted = options == "allow_other"
                && fs::read_to_string("/etc/fuse.conf")
                    .is_ok_and(|conf| conf.lines().any(|line| line.trim() == "user_allow_other"));
            if permitted {
                continue;
            }
            let said = super::common::output(
                Command::new(program())
                    .args(["mount", "-o", options, here])
                    .arg(&view),
            );
            assert_eq!(said.code, Some(1), "{said:?}");
            assert!(said.stderr.contains(sentence), "{options}: {said:?}");
            assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
        }
        // What fusermount3 does not know is refused, unless it means nothing to a FUSE mount.
        let flags = "strictatime,nodiratime,lazytime,silent,iversion,nomand";
        drop(mount(&source, &scratch, flags));
        std::os::unix::fs::symlink(".", source.join("link")).unwrap();
        let mounted = builder(Mounted::at(&source, &view))
            .options("nosymfollow")
            .try_mount();
        match mounted {
            Ok(mounted) => assert_eq!(
                errno(fs::read_dir(mounted.path().join("link"))),
                libc::ELOOP
            ),
            Err(said) => assert!(
                said.contains("fusermount3") && said.contains("nosymfollow"),
                "{said}"
            ),
        }
        let said = super::common::output(Command::new(program()).args(["mount", here, "/usr"]));
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.stderr
                .contains("choose a mount point that this user owns"),
            "{said:?}"
        );
        let said = super::common::output(
            Command::new(program())
                .args(["mount", here])
                .arg(&view)
                .env("PATH", "/nonexistent"),
        );
        // Where the helper is in its usual place it is found without PATH, too.
        assert!(said.ok(), "{said:?}");
        let said = super::common::output(Command::new(program()).arg("umount").arg(&view));
        assert!(said.ok(), "{said:?}");
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn totals_of_directories_follow_what_is_done() {
        let source = source("totals");
        let scratch = Scratch::new("user-totals");
        fs::create_dir(source.join("sub")).unwrap();
        fs::write(source.join("sub/a"), content(1, 40_000)).unwrap();
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        let totals = |of: &Path| {
            [
                "files",
                "dirs",
                "bytes",
                "exclusive_bytes",
                "set_shared_bytes",
            ]
            .map(|name| number(of, name).unwrap())
        };
        assert_eq!(totals(view), [1, 1, 40_960, 40_960, 0]);
        sh(view, "cp sub/a b; ln b sub/b");
        assert_eq!(totals(view), [2, 1, 81_920, 0, 40_960]);
        assert_eq!(
            number(&view.join("sub"), "linked_outside_bytes").unwrap(),
            40_960
        );
        assert_eq!(number(&view.join("b"), "peers").unwrap(), 1);
        let mut rows: Vec<String> = text(view, "children")
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        rows.sort();
        assert_eq!(rows, ["d 81920 81920 0 2 2 sub", "f 40960 40960 0 1 1 b"]);
        for command in ["du", "scan"] {
            let said = super::common::output(Command::new(program()).arg(command).arg(view));
            assert!(said.ok(), "{said:?}");
        }
        sh(view, "rm b sub/b");
        becomes(view, 40_960);
        assert_eq!(totals(view), [1, 1, 40_960, 40_960, 0]);
    }

    /// Changes behind the mount of names and of files show in totals a second later.
    fn shows(view: &Path, wanted: [u64; 3]) {
        let totals = || ["files", "dirs", "bytes"].map(|name| number(view, name).unwrap());
        let started = Instant::now();
        while totals() != wanted {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{:?} instead of {wanted:?}",
                totals()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn totals_see_what_is_done_behind_the_mount_a_second_later() {
        let source = source("totals-behind");
        let scratch = Scratch::new("user-totals-behind");
        fs::create_dir_all(source.join("a/b/c")).unwrap();
        fs::write(source.join("a/b/c/x"), content(1, 40_000)).unwrap();
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        assert_eq!(number(view, "bytes").unwrap(), 40_960);
        // A new file, one that grows, one that is replaced.
        fs::write(source.join("a/b/y"), content(2, 4096)).unwrap();
        shows(view, [2, 3, 45_056]);
        write_at(&source.join("a/b/c/x"), 40_000, &content(3, 10_000));
        shows(view, [2, 3, 57_344]);
        fs::write(source.join("new"), content(4, 8192)).unwrap();
        fs::rename(source.join("new"), source.join("a/b/y")).unwrap();
        shows(view, [2, 3, 61_440]);
        // A directory that moves, with what nobody has looked up through the mount.
        fs::rename(source.join("a/b"), source.join("moved")).unwrap();
        fs::write(source.join("moved/c/z"), content(5, 4096)).unwrap();
        shows(view, [3, 3, 65_536]);
        assert_eq!(number(&view.join("a"), "files").unwrap(), 0);
        assert_eq!(number(&view.join("moved"), "files").unwrap(), 3);
        fs::remove_dir_all(source.join("moved")).unwrap();
        shows(view, [0, 1, 0]);
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn totals_follow_trees_that_move_through_the_mount() {
        let source = source("totals-moves");
        let scratch = Scratch::new("user-totals-moves");
        fs::create_dir_all(source.join("a/b/c")).unwrap();
        fs::create_dir(source.join("d")).unwrap();
        for number in 0..200 {
            let path = source.join(format!("a/b/c/f{number}"));
            fs::write(path, content(number, 5000)).unwrap();
        }
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        let files = |name: &str| number(&view.join(name), "files").unwrap();
        assert_eq!(files(""), 200);
        fs::rename(view.join("a/b"), view.join("d/e")).unwrap();
        assert_eq!([files("a"), files("d"), files("d/e/c")], [0, 200, 200]);
        // Files that are known by their old way only.
        write_at(&source.join("d/e/c/f7"), 0, &content(900, 30_000));
        write_at(&view.join("d/e/c/f8"), 0, &content(901, 30_000));
        fs::hard_link(view.join("d/e/c/f8"), view.join("a/link")).unwrap();
        fs::remove_file(view.join("d/e/c/f8")).unwrap();
        assert_eq!([files(""), files("a"), files("d")], [200, 1, 199]);
        assert_eq!(number(&view.join("a"), "bytes").unwrap(), 32_768);
        shows(view, [200, 4, 198 * 8192 + 2 * 32_768]);
        sh(view, "cp -r d/e copy; rm -r d/e/c");
        assert_eq!([files(""), files("copy"), files("d")], [200, 199, 0]);
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn what_the_user_may_not_read_is_left_out_of_totals_and_counted() {
        let source = source("totals-unreadable");
        let scratch = Scratch::new("user-totals-unreadable");
        fs::write(source.join("file"), content(1, 8192)).unwrap();
        fs::write(source.join("secret"), content(2, 8192)).unwrap();
        fs::create_dir(source.join("closed")).unwrap();
        fs::write(source.join("closed/in"), content(3, 8192)).unwrap();
        for name in ["secret", "closed"] {
            fs::set_permissions(source.join(name), fs::Permissions::from_mode(0o000)).unwrap();
        }
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        let totals = ["files", "dirs", "bytes"].map(|name| number(view, name).unwrap());
        assert_eq!(totals, [2, 1, 8192]);
        // Who shares may be among what is left out.
        assert_eq!(number(&view.join("file"), "peers").unwrap(), 0);
        sh(view, "cp file clone");
        assert_eq!(errno(number(&view.join("file"), "peers")), libc::ENODATA);
        assert!(!text(&view.join("file"), "json").unwrap().contains("peers"));
        for name in ["secret", "closed"] {
            fs::set_permissions(view.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        shows(view, [4, 1, 4 * 8192]);
        assert_eq!(number(&view.join("file"), "peers").unwrap(), 1);
        let stats: serde_json::Value = serde_json::from_str(&text(view, "stats").unwrap()).unwrap();
        assert!(stats["scan"]["unreadable_files"].as_u64().unwrap() >= 1);
        assert!(stats["scan"]["unreadable_directories"].as_u64().unwrap() >= 1);
    }

    /// What lies in a directory: files (of several links counted once), directories, bytes.
    fn recount(dir: &Path) -> [u64; 3] {
        let mut seen = std::collections::BTreeMap::new();
        let (mut dirs, mut next) = (0, vec![dir.to_owned()]);
        while let Some(dir) = next.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    dirs += 1;
                    next.push(path);
                } else if meta.is_file() {
                    seen.insert(meta.ino(), path);
                }
            }
        }
        let bytes = seen.values().map(|path| truth::numbers(path).bytes).sum();
        [seen.len() as u64, dirs, bytes]
    }

    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn totals_are_exact_in_random_histories() {
        random_history("totals-random", "");
    }

    /// Nothing is read again because of its age: what is known of names must be right by itself.
    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn totals_are_exact_in_random_histories_without_reading_again() {
        random_history("totals-once", "entry_timeout=3600,attr_timeout=3600");
    }

    fn random_history(name: &str, options: &str) {
        let source = source(name);
        let scratch = Scratch::new(&format!("user-{name}"));
        let mounted = mount(&source, &scratch, options);
        let view = mounted.path();
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut dirs = vec![PathBuf::new()];
        let mut files: Vec<PathBuf> = Vec::new();
        for step in 0..240_usize {
            let dir = dirs[random.random_range(0..dirs.len())].clone();
            let new = dir.join(format!("n{step}"));
            let pick = random.random_range(0..files.len().max(1));
            let some = files.get(pick).cloned();
            match (random.random_range(0..10), some) {
                (0, _) => {
                    fs::create_dir(view.join(&new)).unwrap();
                    dirs.push(new);
                }
                (1..=2, Some(file)) => {
                    fs::copy(view.join(file), view.join(&new)).unwrap();
                    files.push(new);
                }
                (3, Some(file)) => {
                    fs::hard_link(view.join(file), view.join(&new)).unwrap();
                    files.push(new);
                }
                (4, Some(file)) => {
                    fs::rename(view.join(file), view.join(&new)).unwrap();
                    files[pick] = new;
                }
                (5, Some(file)) => {
                    fs::remove_file(view.join(file)).unwrap();
                    files.swap_remove(pick);
                }
                (6, _) => {
                    // A directory with all that is in it, to where it does not stand below itself.
                    let from = dirs[random.random_range(0..dirs.len())].clone();
                    if from.as_os_str().is_empty() || new.starts_with(&from) {
                        continue;
                    }
                    fs::rename(view.join(&from), view.join(&new)).unwrap();
                    for path in dirs.iter_mut().chain(&mut files) {
                        if let Ok(below) = path.strip_prefix(&from) {
                            *path = if below.as_os_str().is_empty() {
                                new.clone()
                            } else {
                                new.join(below)
                            };
                        }
                    }
                }
                (7, Some(file)) => {
                    let at = random.random_range(0..20) * 4096;
                    write_at(&view.join(file), at, &content(step as u64, 9000));
                }
                _ => {
                    fs::write(view.join(&new), content(step as u64, 5000 + step * 100)).unwrap();
                    files.push(new);
                }
            }
            if step % 40 == 39 {
                kernel_forgets();
            }
            if step % 3 == 0 {
                let dir = &dirs[random.random_range(0..dirs.len())];
                let asked = view.join(dir);
                let totals = ["files", "dirs", "bytes"].map(|name| number(&asked, name).unwrap());
                let wanted = recount(&source.join(dir));
                assert_eq!(totals, wanted, "seed {seed}, step {step}, {dir:?}");
            }
        }
    }

    /// What is there all the time counts once, while it moves through the mount.
    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn what_moves_during_questions_counts_once() {
        let source = source("totals-moving");
        for dir in ["a/x/deep", "b", "c"] {
            fs::create_dir_all(source.join(dir)).unwrap();
        }
        for number in 0..40 {
            let dir = ["a/x", "a/x/deep"][number % 2];
            let path = source.join(dir).join(format!("f{number}"));
            fs::write(path, content(number as u64, 5000)).unwrap();
        }
        let scratch = Scratch::new("user-totals-moving");
        for options in ["", "entry_timeout=0"] {
            let mounted = mount(&source, &scratch, options);
            let view = mounted.path();
            let done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                let mover = scope.spawn(|| {
                    let mut moves = 0_usize;
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        let at = |turn: usize| ["a", "b", "c"][turn % 3];
                        let dirs = [moves, moves + 1].map(|turn| view.join(at(turn)).join("x"));
                        fs::rename(&dirs[0], &dirs[1]).unwrap();
                        let file = dirs[1].join("deep/f1");
                        fs::rename(&file, dirs[1].join("f1")).unwrap();
                        fs::rename(dirs[1].join("f1"), &file).unwrap();
                        moves += 1;
                    }
                    while !moves.is_multiple_of(3) {
                        let at = |turn: usize| view.join(["a", "b", "c"][turn % 3]).join("x");
                        fs::rename(at(moves), at(moves + 1)).unwrap();
                        moves += 1;
                    }
                });
                let started = Instant::now();
                while started.elapsed() < Duration::from_secs(2) && !mover.is_finished() {
                    let totals = ["files", "dirs", "bytes"].map(|name| number(view, name).unwrap());
                    assert_eq!(totals, [40, 5, 40 * 8192], "with {options:?}");
                }
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        }
    }

    /// The user's `du` of a mount, of the plain directory, and the paths of peers.
    #[test]
    #[ignore = "runs as an ordinary user, started by root's tests"]
    fn the_commands_work_on_a_mount_of_ones_own() {
        let source = source("totals-commands");
        let scratch = Scratch::new("user-totals-commands");
        fs::create_dir_all(source.join("one/two")).unwrap();
        fs::write(source.join("one/a"), content(1, 40_960)).unwrap();
        clone(&source.join("one/a"), &source.join("one/two/b"));
        fs::write(source.join("c"), content(2, 10_000)).unwrap();
        truth::settle(&source);
        let mounted = mount(&source, &scratch, "");
        let view = mounted.path();
        let call = |arguments: &[&str], path: &Path| {
            let mut command = Command::new(program());
            let said = super::common::output(command.args(arguments).arg(path));
            assert!(said.ok() && said.stderr.is_empty(), "{said:?}");
            said.stdout.replace(path.to_str().unwrap(), "")
        };
        let plain = call(&["du", "--all", "--bytes"], &source);
        assert_eq!(call(&["du", "--all", "--bytes"], view), plain);
        assert!(plain.contains("94208"), "{plain}");
        let peers = call(&["show", "--peers"], &view.join("one/a"));
        assert_eq!(peers.trim_end(), view.join("one/two/b").to_str().unwrap());
    }
}
