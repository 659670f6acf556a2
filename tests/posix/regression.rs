//! One small test for each public fault of another passthrough or FUSE filesystem that could be
//! ours too, with its source: names, listings, modes, mounts, programs. Faults of data, times and
//! attributes are in `regression_data.rs`.

use crate::common::calls::{self, Directory, Time, User, chmod, errno, set_times};
use crate::common::venue::Venue;
use crate::common::{Image, Kind, Mounted, have, mount_type, run, try_run};
use crate::{everywhere, on_mounts};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

everywhere!(
    listings_are_complete_whatever_the_length_of_names,
    dot_and_dotdot_are_listed,
    find_sees_no_loop_in_nested_equal_names,
    the_umask_does_not_touch_a_default_acl,
    a_read_only_file_is_truncated_by_its_open_descriptor,
    git_works_on_read_only_objects,
    attributes_are_set_on_files_without_permissions,
    a_rename_onto_a_hard_link_changes_nothing,
    a_file_created_with_o_excl_over_nothing_can_be_opened_again,
    many_supplementary_groups_are_honoured,
    truncating_opens_read_only_do_what_they_do_below,
    cargo_builds_and_links,
);

on_mounts!(
    the_lister_with_few_descriptors_sees_every_file,
    a_replaced_lower_file_recovers,
    a_second_unmount_hits_nobody_else,
);

/// go-fuse 353 and 391: entries that did not fit one reply were lost.
fn listings_are_complete_whatever_the_length_of_names(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    let mut expected = BTreeSet::new();
    for number in 0..300usize {
        let name = format!("{number:04}{}", "n".repeat((number * 37) % 250));
        File::create(dir.join(&name)).unwrap();
        expected.insert(name);
        if number % 25 == 0 {
            let mut stream = Directory::open(&dir).unwrap();
            let seen: Vec<_> = stream.rest().unwrap();
            let names: BTreeSet<_> = seen
                .iter()
                .map(|entry| entry.name.clone().into_string().unwrap())
                .collect();
            assert_eq!(names.len(), seen.len(), "a name came twice");
            assert_eq!(names, expected);
        }
    }
    // `ls -l` asks for attributes with the names.
    let listed = run("ls", ["-l", dir.to_str().unwrap()]);
    assert_eq!(listed.lines().count(), 301);
    assert!(!listed.contains('?'));
}

/// libfuse 987: `.` and `..` were left out (generic/401).
fn dot_and_dotdot_are_listed(venue: &mut Venue) {
    fs::create_dir_all(venue.at("a/b")).unwrap();
    let ino = |name: &str| fs::metadata(venue.at(name)).unwrap().ino();
    let mut stream = Directory::open(&venue.at("a/b")).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = stream.next().unwrap() {
        assert_eq!(entry.kind, libc::DT_DIR);
        found.push((entry.name.into_string().unwrap(), entry.ino));
    }
    found.sort();
    assert_eq!(
        found,
        [(".".to_owned(), ino("a/b")), ("..".to_owned(), ino("a"))]
    );
}

/// restic 4253, mergerfs 692, zfs 140: equal inode numbers of a directory and one above it.
fn find_sees_no_loop_in_nested_equal_names(venue: &mut Venue) {
    fs::create_dir_all(venue.at("test/test/test/test")).unwrap();
    for depth in 0..60 {
        fs::create_dir_all(venue.at(format!("wide/{depth}/a/b/c"))).unwrap();
    }
    let dir = venue.dir().to_str().unwrap();
    let said = try_run("find", [dir]);
    assert!(said.ok() && said.stderr.is_empty(), "{}", said.stderr);
    assert_eq!(said.stdout.lines().count(), 1 + 4 + 1 + 60 * 4);
    let said = try_run("du", ["-s", dir]);
    assert!(said.ok() && said.stderr.is_empty(), "{}", said.stderr);
    if venue.kind() == Kind::Btrfs {
        // Every subvolume root has the number 256.
        let below = venue.backing();
        for name in ["one", "one/two", "other"] {
            run(
                "btrfs",
                [
                    "-q",
                    "subvolume",
                    "create",
                    below.join(name).to_str().unwrap(),
                ],
            );
            fs::write(below.join(name).join("f"), name).unwrap();
        }
        let identity = |name: &str| {
            let meta = fs::metadata(venue.at(name)).unwrap();
            (meta.dev(), meta.ino())
        };
        let all: BTreeSet<_> = [
            "",
            "one",
            "one/two",
            "other",
            "one/f",
            "one/two/f",
            "other/f",
        ]
        .into_iter()
        .map(identity)
        .collect();
        assert_eq!(all.len(), 7, "two directories or files are one: {all:?}");
        for name in ["one", "one/two", "other"] {
            assert_eq!(fs::read_to_string(venue.at(name).join("f")).unwrap(), name);
            let mut stream = Directory::open(&venue.at(name)).unwrap();
            for entry in stream.rest().unwrap() {
                if entry.name == "f" {
                    assert_eq!(
                        entry.ino,
                        fs::metadata(venue.at(name).join("f")).unwrap().ino()
                    );
                }
            }
        }
        let said = try_run("find", [dir, "-name", "f"]);
        assert!(said.ok() && said.stderr.is_empty(), "{}", said.stderr);
        assert_eq!(said.stdout.lines().count(), 3);
        assert_eq!(
            errno(fs::hard_link(venue.at("one/f"), venue.at("link"))),
            libc::EXDEV
        );
        assert_eq!(
            errno(fs::rename(venue.at("one/f"), venue.at("moved"))),
            libc::EXDEV
        );
        run("mv", [venue.at("one/f"), venue.at("moved")]);
        assert_eq!(fs::read_to_string(venue.at("moved")).unwrap(), "one");
        run(
            "cp",
            [
                "--reflink=auto".as_ref(),
                venue.at("other/f").as_os_str(),
                venue.at("one/two/g").as_os_str(),
            ],
        );
        assert_eq!(fs::read_to_string(venue.at("one/two/g")).unwrap(), "other");
    }
}

/// mergerfs 357: the umask was applied although the directory has a default ACL.
fn the_umask_does_not_touch_a_default_acl(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    run(
        "setfacl",
        ["-d", "-m", "u::rwx,g::rwx,o::rwx", dir.to_str().unwrap()],
    );
    calls::with_umask(0o077, || {
        File::create(dir.join("f")).unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
    });
    assert_eq!(fs::metadata(dir.join("f")).unwrap().mode() & 0o777, 0o666);
    assert_eq!(fs::metadata(dir.join("sub")).unwrap().mode() & 0o777, 0o777);
}

/// fuse-overlayfs 42, openvfs 66: ftruncate through a descriptor checked the mode again.
fn a_read_only_file_is_truncated_by_its_open_descriptor(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    chmod(&dir, 0o777).unwrap();
    User::new(12001).run(|| {
        for mode in [0o444, 0o000] {
            let path = dir.join(format!("{mode:o}"));
            let file = calls::open_mode(&path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, mode)
                .unwrap();
            file.write_all_at(b"0123456789", 0).unwrap();
            file.set_len(4).unwrap();
            file.set_len(100).unwrap();
            calls::fallocate(&file, 0, 0, 8192).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
            assert_eq!(
                errno(nix::unistd::truncate(&path, 0).map_err(Into::into)),
                libc::EACCES
            );
        }
    });
}

/// mergerfs 343 and 626: git creates its objects read-only and writes them.
fn git_works_on_read_only_objects(venue: &mut Venue) {
    if !have("git") {
        return;
    }
    let dir = venue.at("work");
    fs::create_dir(&dir).unwrap();
    calls::chown(&dir, Some(12001), Some(12001)).unwrap();
    let script = "set -e
        export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q -b main repo; cd repo
        for i in $(seq 60); do echo file $i > f$i; done
        git add -A; git commit -qm one
        git checkout -q -b other; echo more >> f1; git mv f2 g2; git commit -qam two
        git checkout -q main; git merge -q other
        git gc -q --prune=now; git fsck --full --strict
        git clone -q . ../clone; cd ../clone; git status --porcelain; git log --oneline | wc -l";
    let said = User::new(12001).run(|| {
        let mut command = Command::new("sh");
        crate::common::output(command.args(["-c", script]).current_dir(&dir))
    });
    assert!(said.ok(), "{}{}", said.stdout, said.stderr);
    assert_eq!(said.stdout.trim(), "2");
}

/// fuse-overlayfs 114 and 307: attributes of a file without permissions could not be set, so tar
/// failed to extract.
fn attributes_are_set_on_files_without_permissions(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    calls::chown(&dir, Some(12001), Some(12001)).unwrap();
    User::new(12001).run(|| {
        let path = dir.join("f");
        fs::write(&path, "x").unwrap();
        chmod(&path, 0).unwrap();
        set_times(&path, Time::At(1, 0), Time::At(2, 0)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mtime(), 2);
        chmod(&path, 0o444).unwrap();
        fs::hard_link(&path, dir.join("g")).unwrap();
        let script = "mkdir t && echo x > t/locked && chmod 0000 t/locked && echo y > t/read &&
            chmod 0444 t/read && mkdir -m 0555 t/dir && chmod u+r t/locked &&
            tar -cf a.tar t && mkdir out && tar -C out -xpf a.tar && stat -c %a out/t/*";
        let mut command = Command::new("sh");
        let said = crate::common::output(command.args(["-c", script]).current_dir(&dir));
        assert!(said.ok(), "{}{}", said.stdout, said.stderr);
        assert_eq!(said.stdout, "555\n400\n444\n");
    });
}

/// ZeroFS 278, nfs-ganesha 4: renaming one name of an inode onto another lost a name or a link.
fn a_rename_onto_a_hard_link_changes_nothing(venue: &mut Venue) {
    let (a, b) = (venue.at("a"), venue.at("b"));
    fs::write(&a, "x").unwrap();
    fs::hard_link(&a, &b).unwrap();
    fs::rename(&a, &b).unwrap();
    for path in [&a, &b] {
        assert_eq!(fs::metadata(path).unwrap().nlink(), 2);
        assert_eq!(fs::read_to_string(path).unwrap(), "x");
    }
    fs::remove_file(&a).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 1);
}

/// rk8s 171: the first O_CREAT of a copy gave EIO; later ones worked.
fn a_file_created_with_o_excl_over_nothing_can_be_opened_again(venue: &mut Venue) {
    for round in 0..50 {
        let path = venue.at(format!("f{round}"));
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let first = calls::open(&path, flags).unwrap();
        first.write_all_at(b"first", 0).unwrap();
        let second = calls::open(&path, libc::O_RDWR | libc::O_CREAT).unwrap();
        let mut text = [0; 5];
        second.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"first");
        assert_eq!(errno(calls::open(&path, flags)), libc::EEXIST);
    }
}

/// gocryptfs 394, glusterfs 41: only the first 32 groups, or none, of the caller counted.
fn many_supplementary_groups_are_honoured(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    calls::chown(&dir, Some(0), Some(15_999)).unwrap();
    chmod(&dir, 0o770).unwrap();
    let groups: Vec<u32> = (15_000..16_000).collect();
    User::new(12001).groups(&groups).run(|| {
        fs::write(dir.join("f"), "x").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::remove_file(dir.join("f")).unwrap();
    });
    User::new(12001)
        .groups(&groups[..999])
        .run(|| assert_eq!(errno(fs::write(dir.join("f"), "x")), libc::EACCES));
}

/// Alluxio 15840: O_RDONLY with O_TRUNC was an error.
fn truncating_opens_read_only_do_what_they_do_below(venue: &mut Venue) {
    let native = venue.native().join("f");
    for path in [&venue.at("f"), &native] {
        fs::write(path, "content").unwrap();
        calls::open(path, libc::O_RDONLY | libc::O_TRUNC).unwrap();
        assert_eq!(fs::metadata(path).unwrap().len(), 0);
    }
}

/// rk8s 151: a cargo project in the mount did not link.
fn cargo_builds_and_links(venue: &mut Venue) {
    if !have("cc") {
        return;
    }
    let dir = venue.at("hello");
    fs::create_dir_all(dir.join("src")).unwrap();
    fs::write(
        dir.join("Cargo.toml"),
        "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )
    .unwrap();
    fs::write(
        dir.join("src/lib.rs"),
        "pub fn word() -> &'static str { \"hello\" }\n",
    )
    .unwrap();
    fs::write(
        dir.join("src/main.rs"),
        "fn main() { println!(\"{}\", hello::word()); }\n",
    )
    .unwrap();
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        let clean = ["CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_BUILD_TARGET_DIR"];
        for name in clean {
            command.env_remove(name);
        }
        crate::common::output(command.args(arguments).arg("--offline").current_dir(&dir))
    };
    let said = cargo(&["run", "-q"]);
    assert!(
        said.ok() && said.stdout == "hello\n",
        "{}{}",
        said.stdout,
        said.stderr
    );
    // Changed and built again, on what the first build left.
    fs::write(
        dir.join("src/lib.rs"),
        "pub fn word() -> &'static str { \"again\" }\n",
    )
    .unwrap();
    let said = cargo(&["run", "-q"]);
    assert!(
        said.ok() && said.stdout == "again\n",
        "{}{}",
        said.stdout,
        said.stderr
    );
}

/// libfuse 1131: with a descriptor a known inode, a walk over a large tree ran out of them (and in
/// readdirplus the entry that failed vanished from the listing).
fn the_lister_with_few_descriptors_sees_every_file(venue: &mut Venue) {
    let below = venue.backing();
    for dir in 0..20 {
        let path = below.join(format!("d{dir}"));
        fs::create_dir(&path).unwrap();
        for file in 0..150 {
            fs::write(path.join(format!("f{file}")), "x").unwrap();
        }
    }
    let builder = venue.builder("").unwrap();
    drop(venue.take_mount());
    let mount = builder.under(&["prlimit", "--nofile=256:256"]).mount();
    let dir = mount.path().to_str().unwrap();
    let said = try_run("find", [dir, "-type", "f", "-size", "1", "-printf", "%i\n"]);
    assert!(said.ok() && said.stderr.is_empty(), "{}", said.stderr);
    assert_eq!(said.stdout.lines().collect::<BTreeSet<_>>().len(), 3000);
    let said = try_run("ls", ["-lR", dir]);
    assert!(said.ok() && !said.stdout.contains('?'), "{}", said.stderr);
    let said = try_run("grep", ["-rc", "x", dir]);
    assert!(said.ok(), "{}", said.stderr);
    assert_eq!(said.stdout.lines().count(), 3000);
}

/// libfuse 1431: a lower file that was replaced behind the mount gave ESTALE for ever.
fn a_replaced_lower_file_recovers(venue: &mut Venue) {
    let (shown, below) = (venue.at("f"), venue.backing().join("f"));
    fs::write(&shown, "first").unwrap();
    assert_eq!(fs::read_to_string(&shown).unwrap(), "first");
    for round in 0..20 {
        let text = format!("replacement {round}");
        fs::write(below.with_extension("new"), &text).unwrap();
        fs::rename(below.with_extension("new"), &below).unwrap();
        let started = std::time::Instant::now();
        let mut stale = 0;
        loop {
            match fs::read_to_string(&shown) {
                Ok(got) if got == text => break,
                // The old file while its name is still trusted.
                Ok(got) => assert!(got.starts_with("replacement") || got == "first", "{got:?}"),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
                    stale += 1;
                }
            }
            assert!(
                started.elapsed().as_secs() < 10,
                "round {round} does not recover"
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(stale <= 1, "ESTALE {stale} times");
    }
}

/// libfuse 1286 and 1287, fuser 346 and 658: after an unmount from outside the daemon unmounted
/// once more, and hit whatever was mounted there by then.
fn a_second_unmount_hits_nobody_else(venue: &mut Venue) {
    let mut mount = venue.take_mount().unwrap();
    let point = mount.path().to_owned();
    run(
        "mount",
        ["-t", "tmpfs", "underneath", point.to_str().unwrap()],
    );
    // What lies on top is not the daemon's: its end must leave it alone.
    run("umount", [&point]);
    run("umount", [&point]);
    run(
        "mount",
        ["-t", "tmpfs", "bystander", point.to_str().unwrap()],
    );
    let status = mount.wait();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let left = mount_type(&point);
    run("umount", [&point]);
    assert_eq!(left.as_deref(), Some("tmpfs"));
    assert!(status.success(), "{status}");
    assert!(!mount.said().contains("panicked"), "{}", mount.said());
}

/// As above, elsewhere: the device number of a filesystem that is gone is the next one's, so a
/// daemon that looked for "its" number after an unmount from outside unmounted strangers.
#[test]
fn mounts_that_come_while_others_go_stay() {
    let Some(image) = Image::xfs() else { return };
    let source = image.tree();
    fs::create_dir(source.join("going")).unwrap();
    std::thread::scope(|scope| {
        let (image, source) = (&image, &source);
        scope.spawn(move || {
            for round in 0..60 {
                let point = image.beside(&format!("going-{}", round % 4));
                let mut mount = Mounted::at(&source.join("going"), &point).mount();
                run("umount", [mount.path()]);
                assert!(mount.wait().success());
            }
        });
        for round in 0..300 {
            let point = image.beside(&format!("staying-{}", round % 4));
            run(
                "mount",
                ["-t", "tmpfs", "bystander", point.to_str().unwrap()],
            );
            std::thread::sleep(std::time::Duration::from_millis(8));
            assert_eq!(
                mount_type(&point).as_deref(),
                Some("tmpfs"),
                "round {round}"
            );
            run("umount", [&point]);
        }
    });
}

/// A mount without `allow_other` is its owner's alone, as the kernel has it; the fixture and the
/// tests above rely on the difference.
#[test]
fn without_allow_other_other_users_are_refused() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    chmod(&tree, 0o755).unwrap();
    fs::write(tree.join("f"), "x").unwrap();
    let mount = Mounted::at(&tree, &image.beside("mnt")).mount();
    assert_eq!(fs::read_to_string(mount.path().join("f")).unwrap(), "x");
    let refused = User::new(12001).run(|| fs::read(mount.path().join("f")));
    assert_eq!(errno(refused), libc::EACCES);
}
