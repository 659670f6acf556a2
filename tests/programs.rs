//! Programs of the field at work inside a mount.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Image, Mounted, Output, have, output, output_within};
use std::path::Path;
use std::process::Command;

const IO: [&str; 2] = ["io=passthrough", "io=cached"];

fn sh(dir: &Path, script: &str) -> String {
    let said: Output = output(
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

fn with_mounts(work: impl Fn(&Path, &Path)) {
    for io in IO {
        let Some(image) = Image::of(common::Kind::Xfs).size_mib(2048).make() else {
            return;
        };
        let tree = image.tree();
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(io)
            .mount();
        work(mounted.path(), &tree);
    }
}

#[test]
fn git_commits_clones_and_is_clean() {
    if !have("git") {
        return;
    }
    with_mounts(|view, tree| {
        sh(
            view,
            "git init -q one; cd one; for i in $(seq 200); do echo $i > f$i; done; mkdir d; echo x > d/y; \
             git add .; git commit -qm first; git gc -q; cd ..; git clone -q one two; cd two; \
             echo more >> f1; git commit -qam second; git fsck --strict 2>/dev/null",
        );
        assert_eq!(sh(&view.join("two"), "git status --porcelain"), "");
        assert_eq!(sh(&tree.join("two"), "git status --porcelain"), "");
        assert_eq!(
            sh(&view.join("two"), "git log --oneline | wc -l").trim(),
            "2"
        );
    });
}

#[test]
fn tar_packs_and_unpacks_the_same_tree() {
    with_mounts(|view, tree| {
        sh(
            view,
            "mkdir -p in/a/b; head -c 3000000 /dev/urandom > in/big; for i in $(seq 100); do echo $i > in/a/$i; done; \
             ln -s big in/link; ln in/big in/hard; truncate -s 10M in/sparse; echo end >> in/sparse; chmod 640 in/a/7; \
             touch -d '1969-05-05 05:05:05.123456789' in/a/8; cp in/big in/clone; \
             tar --xattrs -cSf t.tar in; mkdir out; tar --xattrs -xpSf t.tar -C out; diff -r in out/in; \
             [ $(stat -c %a out/in/a/7) = 640 ]; [ $(stat -c %h out/in/big) = 2 ]; \
             [ \"$(stat -c %y out/in/a/8)\" = \"$(stat -c %y in/a/8)\" ]",
        );
        sh(tree, "diff -r in out/in; cmp in/clone out/in/clone");
    });
}

#[test]
fn sqlite_works_in_wal_mode_with_several_writers() {
    if !have("sqlite3") {
        return;
    }
    with_mounts(|view, tree| {
        sh(
            view,
            "sqlite3 db 'pragma journal_mode=wal; create table t(w int, i int);' >/dev/null; \
             for w in 1 2 3 4; do (for i in $(seq 25); do \
               sqlite3 -cmd '.timeout 60000' db \"insert into t values($w,$i);\"; done) & pids=\"$pids $!\"; done; \
             for p in $pids; do wait $p; done",
        );
        let ask =
            "sqlite3 -cmd '.timeout 60000' db 'select count(*) from t; pragma integrity_check;'";
        assert_eq!(sh(view, ask), "100\nok\n");
        assert_eq!(sh(tree, ask), "100\nok\n");
    });
}

#[test]
fn rsync_and_cp_copy_a_tree_faithfully() {
    if !have("rsync") {
        return;
    }
    with_mounts(|view, tree| {
        sh(
            view,
            "mkdir -p in/d; head -c 2000000 /dev/urandom > in/big; cp in/big in/clone; truncate -s 5M in/sparse; \
             echo x >> in/sparse; setfattr -n user.mine -v 1 in/big; \
             rsync -aXS in/ r/; cp -a in c; diff -r in r; diff -r in c; \
             [ \"$(getfattr --only-values -n user.mine r/big)\" = 1 ]; \
             [ \"$(getfattr --only-values -n user.mine c/big)\" = 1 ]",
        );
        sh(
            tree,
            "for f in r/big c/big; do getfattr -d $f | grep -q user.mine; ! getfattr -d $f | grep reflink; done",
        );
    });
}

#[test]
fn cargo_builds_this_project_inside_the_mount() {
    if !have("cc") {
        return;
    }
    let Some(image) = Image::of(common::Kind::Xfs).size_mib(8192).make() else {
        return;
    };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let project = mounted.path().join("project");
    std::fs::create_dir(&project).unwrap();
    for part in [
        "src",
        "benches",
        "mount-helper",
        "tests",
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
    ] {
        if root.join(part).exists() {
            common::run(
                "cp",
                [
                    "-r".as_ref(),
                    root.join(part).as_os_str(),
                    project.as_os_str(),
                ],
            );
        }
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Without optimisation: the point is the filesystem, not the compiler.
    let said = output_within(
        Command::new(cargo)
            .args(["build", "--offline", "--bin", "sharelens"])
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_TARGET_DIR", project.join("target"))
            .env_remove("RUSTFLAGS")
            .current_dir(&project),
        std::time::Duration::from_secs(1800),
    );
    assert!(said.ok(), "{said:?}");
    let built = project.join("target/debug/sharelens");
    let version = common::run(&built, ["--version"]);
    assert!(version.starts_with("sharelens "), "{version}");
}
