//! `make install` and `make uninstall`, and the systemd unit.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Scratch, built, have, need, run, sharelens, try_run};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const INSTALLED: [&str; 10] = [
    "sbin/mount.fuse.sharelens",
    "sbin/mount.sharelens",
    "usr/bin/sharelens",
    "usr/lib/systemd/system/sharelens@.service",
    "usr/share/bash-completion/completions/sharelens",
    "usr/share/fish/vendor_completions.d/sharelens.fish",
    "usr/share/man/man1/sharelens-mount.1",
    "usr/share/man/man1/sharelens.1",
    "usr/share/man/man8/mount.sharelens.8",
    "usr/share/zsh/site-functions/_sharelens",
];

fn files(below: &Path) -> BTreeSet<String> {
    run(
        "find",
        [
            below.to_str().unwrap(),
            "!",
            "-type",
            "d",
            "-printf",
            "%P\n",
        ],
    )
    .lines()
    .map(str::to_owned)
    .collect()
}

/// Runs make on what is built already.
fn make(target: &str, destination: &Path) {
    let programs = sharelens().parent().unwrap().to_owned();
    let scratch = Scratch::new("make");
    run(
        "make",
        [
            "-C",
            env!("CARGO_MANIFEST_DIR"),
            "-o",
            "build",
            target,
            "PREFIX=/usr",
            &format!("RELEASE={}", programs.display()),
            &format!("TARGET={}", scratch.path().display()),
            &format!("DESTDIR={}", destination.display()),
        ],
    );
}

fn can_install() -> bool {
    have("make")
        && need(
            built("mount-sharelens").exists(),
            "the whole workspace built (cargo build --workspace)",
        )
}

#[test]
fn everything_is_installed_below_destdir_and_uninstalled_again() {
    if !can_install() {
        return;
    }
    let scratch = Scratch::new("install");
    make("install", scratch.path());
    let installed = files(scratch.path());
    for file in INSTALLED {
        assert!(installed.contains(file), "{file} is not in {installed:?}");
    }
    let said = run(scratch.path().join("usr/bin/sharelens"), ["--version"]);
    assert!(said.starts_with("sharelens "), "{said}");
    let said = try_run(scratch.path().join("sbin/mount.fuse.sharelens"), ["--help"]);
    assert!(said.ok(), "{said:?}");
    make("uninstall", scratch.path());
    assert!(
        files(scratch.path()).is_empty(),
        "{:?}",
        files(scratch.path())
    );
}

#[test]
fn systemd_accepts_the_unit() {
    if !can_install() {
        return;
    }
    // Not every machine that this is built on runs systemd.
    if try_run("sh", ["-c", "command -v systemd-analyze"]).code != Some(0) {
        eprintln!("SKIPPED: needs systemd-analyze");
        return;
    }
    let scratch = Scratch::new("unit");
    make("install", scratch.path());
    let unit = fs::read_to_string(
        scratch
            .path()
            .join("usr/lib/systemd/system/sharelens@.service"),
    )
    .unwrap();
    assert!(
        unit.contains("ExecStart=/usr/bin/sharelens mount -f"),
        "{unit}"
    );
    let here = scratch.path().join("sharelens@srv-images.service");
    let program = sharelens().display().to_string();
    fs::write(&here, unit.replace("/usr/bin/sharelens", &program)).unwrap();
    let said = try_run(
        "systemd-analyze",
        ["verify", "--man=no", here.to_str().unwrap()],
    );
    let ours: Vec<&str> = said
        .stderr
        .lines()
        .filter(|line| line.contains("sharelens") || line.contains("cycle"))
        .collect();
    assert!(said.ok() && ours.is_empty(), "{said:?}");
}
