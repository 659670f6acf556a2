//! Mount options: every one in the table is understood, and what is wrong is said in a sentence.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use sharelens::extent::Bytes;
use sharelens::mount::option_table::{Audience, TABLE, help};
use sharelens::mount::options::{Blocks, Io, OptionError, Options, Scan, Unknown};
use std::collections::HashSet;
use std::time::Duration;

fn parse(list: &str) -> Result<Options, OptionError> {
    let mut options = Options::default();
    options.parse(list, Unknown::Refuse)?;
    Ok(options)
}

fn refusal(list: &str) -> String {
    parse(list).unwrap_err().to_string()
}

#[test]
fn an_empty_list_leaves_the_defaults() {
    assert_eq!(parse("").unwrap(), Options::default());
    assert_eq!(parse(",,").unwrap(), Options::default());
    assert_eq!(parse("rw,defaults").unwrap(), Options::default());
}

#[test]
fn every_option_of_the_contract_is_understood() {
    let options = parse(
        "ro,nosuid,nodev,noexec,noatime,allow_other,fsname=data,subtype=lens,io=cached,threads=3,\
         attr_timeout=1.5,entry_timeout=2,cache_size=64M,blocks=exclusive,list_xattrs,\
         scan=background,wait=0.25,max_trust=60,max_age=5,foreground,log=debug",
    )
    .unwrap();
    assert!(options.read_only && options.no_suid && options.no_dev && options.no_exec);
    assert!(options.no_atime && options.allow_other && options.list_xattrs && options.foreground);
    assert_eq!(options.fsname.as_deref(), Some("data"));
    assert_eq!(options.subtype, "lens");
    assert_eq!(options.io, Io::Cached);
    assert_eq!(options.threads.unwrap().get(), 3);
    assert_eq!(options.attr_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(options.entry_timeout, Some(Duration::from_secs(2)));
    assert_eq!(options.cache_size, Bytes(64 << 20));
    assert_eq!(options.blocks, Blocks::Exclusive);
    assert_eq!(options.scan, Scan::Background);
    assert_eq!(options.wait, Duration::from_millis(250));
    assert_eq!(options.max_trust, Some(Duration::from_secs(60)));
    assert_eq!(options.max_age, Duration::from_secs(5));
    assert_eq!(options.log, Some(log::LevelFilter::Debug));
}

#[test]
fn the_contract_document_names_every_option_and_no_other() {
    let document = include_str!("../docs/interface.md");
    let (_, section) = document.split_once("## Mount options").unwrap();
    let (section, _) = section.split_once("## Commands").unwrap();
    let mut named: HashSet<&str> = HashSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let first_cell = row.split(" | ").next().unwrap();
        named.extend(
            first_cell
                .split('`')
                .skip(1)
                .step_by(2)
                .map(|option| option.split('=').next().unwrap()),
        );
    }
    for spec in TABLE {
        if spec.audience == Audience::Own {
            assert!(named.contains(spec.name), "{} is not described", spec.name);
        }
        named.remove(spec.name);
    }
    assert!(named.is_empty(), "no such options: {named:?}");
}

#[test]
fn names_are_unique_and_all_are_in_the_help() {
    let names: HashSet<&str> = TABLE.iter().map(|spec| spec.name).collect();
    assert_eq!(names.len(), TABLE.len());
    let help = help();
    for spec in TABLE {
        let shown = help.lines().any(|line| {
            line.trim_start().split('=').next() == Some(spec.name) && line.starts_with("  ")
        });
        assert_eq!(shown, spec.audience != Audience::Fstab, "{}", spec.name);
    }
}

#[test]
fn later_options_override_earlier_ones() {
    let options = parse("ro,rw,nosuid,suid,io=cached,io=auto").unwrap();
    assert_eq!(options, Options::default());
    assert!(parse("rw,ro").unwrap().read_only);
}

#[test]
fn commas_and_backslashes_in_values_are_escaped_with_a_backslash() {
    let options = parse(r"fsname=a\,b\\c,ro").unwrap();
    assert_eq!(options.fsname.as_deref(), Some(r"a,b\c"));
    assert!(options.read_only);
}

#[test]
fn options_of_fstab_and_systemd_are_understood() {
    let options = parse(
        "defaults,noauto,nofail,_netdev,x-systemd.automount,x-gvfs-show,X-mount.mkdir,comment=x,\
         relatime,auto,nouser",
    )
    .unwrap();
    assert_eq!(options, Options::default());
}

#[test]
fn a_user_mount_is_restricted_unless_overridden_as_mount_8_says() {
    let options = parse("user").unwrap();
    assert!(options.no_suid && options.no_dev && options.no_exec);
    let options = parse("user,exec").unwrap();
    assert!(options.no_suid && options.no_dev && !options.no_exec);
    let options = parse("owner").unwrap();
    assert!(options.no_suid && options.no_dev && !options.no_exec);
}

#[test]
fn an_unknown_option_is_refused_with_the_one_that_was_probably_meant() {
    assert_eq!(
        refusal("allow_othr"),
        "there is no mount option \"allow_othr\"; did you mean allow_other?"
    );
    assert_eq!(
        refusal("compress=zstd"),
        "there is no mount option \"compress\"; see `sharelens mount --help`"
    );
}

#[test]
fn an_unknown_option_is_passed_over_when_mount_8_says_so() {
    let mut options = Options::default();
    options
        .parse("compress=zstd,ro", Unknown::Tolerate)
        .unwrap();
    assert!(options.read_only);
    let bad = options.parse("wait=never", Unknown::Tolerate);
    assert!(
        bad.is_err(),
        "a known option with a wrong value is still wrong"
    );
}

#[test]
fn wrong_values_are_answered_with_what_would_be_right() {
    for (list, sentence) in [
        (
            "io=fast",
            "io=fast: choose one of auto, passthrough, cached",
        ),
        ("wait=soon", "wait=soon: give seconds, such as 30 or 0.5"),
        ("wait=-1", "wait=-1: give seconds, such as 30 or 0.5"),
        ("wait=inf", "wait=inf: give seconds, such as 30 or 0.5"),
        (
            "wait=0",
            "wait=0: no question could ever be answered; give at least 0.001",
        ),
        (
            "cache_size=1X",
            "cache_size=1X: give bytes, such as 268435456 or 256M",
        ),
        (
            "cache_size=99999999T",
            "cache_size=99999999T: more bytes than any machine has",
        ),
        (
            "threads=0",
            "threads=0: give a number of threads from 1 to 64",
        ),
        ("threads=65", "threads=65: more than 64 threads do not help"),
        (
            "max_trust=x",
            "max_trust=x: give seconds, such as 30 or 0.5, or off",
        ),
        (
            "ro=1",
            "the mount option ro takes no value, but \"1\" was given",
        ),
        ("fsname=", "fsname=: the name is empty"),
        (
            "subtype=a.b",
            "subtype=a.b: give a word without blanks and dots",
        ),
    ] {
        assert_eq!(refusal(list), sentence);
    }
    assert!(refusal("threads").starts_with("the mount option threads needs a value: threads=N"));
}

#[test]
fn amounts_of_bytes_take_suffixes_of_either_case() {
    for (text, bytes) in [("0", 0), ("4096", 4096), ("3k", 3 << 10), ("2G", 2 << 30)] {
        let options = parse(&format!("cache_size={text}")).unwrap();
        assert_eq!(options.cache_size, Bytes(bytes));
    }
}
