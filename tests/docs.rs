//! What the documents show is true: their commands are executed, the outputs they show compared,
//! the commands and flags they name looked up, and every refusal has its line.
//!
//! In a document, a block fenced as `sh` is executed, one fenced as `console` executed line by line
//! and compared with what it shows, in the order of the document and in one shell, whose home is
//! on an XFS filesystem with a small project. `sh not-run=CLASS` is not, for the classes below.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::write_synced;
use common::{Image, have, output, sharelens};
use sharelens::mount::{Options, Unknown};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a block is not executed here, and how each of its commands begins.
const NOT_RUN: [(&str, &str); 3] = [
    // Build and test everything: CI calls them.
    ("make", "make "),
    ("cargo", "cargo "),
    // Change the machine's own services.
    ("systemd", "systemctl "),
];

struct Block {
    line: usize,
    kind: String,
    lines: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let mut documents: Vec<PathBuf> = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    documents.push(root().join("README.md"));
    documents.sort();
    assert!(documents.len() > 5);
    documents
}

fn blocks(document: &Path) -> Vec<Block> {
    let text = fs::read_to_string(document).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(kind), None) => {
                open = Some(Block {
                    line: number + 2,
                    kind: kind.trim().to_owned(),
                    lines: Vec::new(),
                });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{document:?} has a fence without an end");
    blocks
}

/// A command and the output that it is shown with.
fn shown(block: &Block) -> Vec<(String, String)> {
    let mut shown: Vec<(String, String)> = Vec::new();
    for line in &block.lines {
        if let Some(command) = line.strip_prefix("$ ") {
            shown.push((command.to_owned(), String::new()));
        } else {
            let (_, expected) = shown.last_mut().expect("output before a command");
            writeln!(expected, "{line}").unwrap();
        }
    }
    shown
}

fn execute(document: &Path) {
    let name = document.strip_prefix(root()).unwrap().display();
    let image = Image::xfs().unwrap();
    let home = image.path().join("home");
    let project = home.join("project");
    fs::create_dir_all(project.join("src")).unwrap();
    write_synced(&project.join("disk.img"), 1, 1 << 20);
    fs::write(project.join("src/main.c"), "int main(void) { return 0; }\n").unwrap();
    symlink(root(), home.join("sharelens")).unwrap();
    let bin = image.beside("bin");
    symlink(sharelens(), bin.join("sharelens")).unwrap();
    let outputs = image.beside("outputs");

    let mut script = String::from("set -eu\n");
    let mut expected = Vec::new();
    for block in blocks(document) {
        writeln!(script, "echo '== {name}:{}'", block.line).unwrap();
        match block.kind.as_str() {
            "sh" => script += &(block.lines.join("\n") + "\n"),
            "console" => {
                for (command, output) in shown(&block) {
                    let file = outputs.join(expected.len().to_string());
                    writeln!(script, "{{ {command}\n}} > '{}' 2>&1", file.display()).unwrap();
                    expected.push((command, output, file));
                }
            }
            _ => {}
        }
    }
    let said = output(
        Command::new("bash")
            .args(["-c", &script])
            .current_dir(&home)
            .env("HOME", &home)
            .env(
                "PATH",
                format!(
                    "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    bin.display()
                ),
            ),
    );
    assert!(said.ok(), "{name}: {said:?}\n{script}");
    assert!(said.stderr.is_empty(), "{name}: {said:?}");
    for (command, output, file) in expected {
        let got = fs::read_to_string(file).unwrap();
        assert_eq!(got.trim_end(), output.trim_end(), "{name}: {command}");
    }
}

#[test]
fn the_commands_of_every_document_do_what_is_shown() {
    if !have("getfattr") || !have("bash") {
        return;
    }
    if Image::xfs().is_none() {
        return;
    }
    let mut executed = 0;
    for document in documents() {
        if blocks(&document)
            .iter()
            .any(|block| ["sh", "console"].contains(&block.kind.as_str()))
        {
            execute(&document);
            executed += 1;
        }
    }
    assert!(executed > 0);
}

#[test]
fn only_commands_of_the_named_classes_are_not_run() {
    for document in documents() {
        for block in blocks(&document) {
            let at = format!("{document:?}:{}", block.line);
            if let Some(class) = block.kind.strip_prefix("sh not-run=") {
                let (_, begins) = NOT_RUN
                    .iter()
                    .find(|(known, _)| *known == class)
                    .unwrap_or_else(|| panic!("{at}: no such class"));
                for line in block.lines.iter().filter(|line| !line.is_empty()) {
                    assert!(line.starts_with(begins), "{at}: {line}");
                }
            } else {
                let known = ["sh", "console", "fstab", "text"];
                assert!(
                    known.contains(&block.kind.as_str()),
                    "{at}: ```{}",
                    block.kind
                );
            }
        }
    }
}

#[test]
fn lines_for_fstab_are_right() {
    let mut seen = 0;
    for document in documents() {
        for block in blocks(&document)
            .iter()
            .filter(|block| block.kind == "fstab")
        {
            for line in &block.lines {
                let fields: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(fields.len(), 6, "{line}");
                assert_eq!(fields[2], "sharelens");
                Options::default()
                    .parse(fields[3], Unknown::Refuse)
                    .unwrap();
                seen += 1;
            }
        }
    }
    assert!(seen > 0);
}

/// What stands between single backquotes.
fn inline_code(text: &str) -> Vec<String> {
    let mut code = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            code.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    code
}

#[test]
fn every_command_and_flag_that_is_named_exists() {
    let mut named = BTreeSet::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for code in inline_code(&text) {
            if let Some(rest) = code.strip_prefix("sharelens ") {
                named.insert(rest.to_owned());
            }
        }
    }
    assert!(named.len() > 10, "{named:?}");
    for call in named {
        let mut words = call.split([' ', '[', ']']).filter(|word| !word.is_empty());
        let command = words.next().unwrap();
        if command.starts_with('-') {
            continue;
        }
        let said = output(Command::new(sharelens()).args([command, "--help"]));
        assert!(said.ok(), "sharelens {call}: {said:?}");
        for flag in words.filter(|word| word.starts_with('-')) {
            assert!(said.stdout.contains(flag), "sharelens {call}: no {flag}");
        }
    }
}

/// The constant parts of the messages in a source file's `#[error(...)]` attributes.
fn messages(source: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join(source)).unwrap();
    text.split("#[error(")
        .skip(1)
        .map(|rest| {
            let (_, rest) = rest.split_once('"').unwrap();
            let (message, _) = rest.split_once('"').unwrap();
            let mut parts = Vec::new();
            let mut rest = message;
            while let Some((part, after)) = rest.split_once('{') {
                parts.push(part.to_owned());
                rest = after.split_once('}').unwrap().1;
            }
            parts.push(rest.to_owned());
            parts
                .iter()
                .map(|part| part.trim_matches(|c: char| " :;,()".contains(c)).to_owned())
                .filter(|part| part.len() > 3)
                .collect()
        })
        .filter(|parts: &Vec<String>| !parts.is_empty())
        .collect()
}

#[test]
fn every_refusal_has_its_line_in_the_troubleshooting_document() {
    let document = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let mut all = messages("src/mount/refusal.rs");
    all.extend(messages("src/mount/options.rs"));
    assert!(all.len() > 20, "{all:?}");
    for parts in all {
        // The beginning of the sentence; the remedy may be said in other words there.
        let first = parts[0].split([':', '(', ';']).next().unwrap().trim();
        let first: String = first.chars().take(40).collect();
        assert!(
            document.contains(&first),
            "{first:?} is not in docs/troubleshooting.md"
        );
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") || link.starts_with('#') {
                continue;
            }
            let target = document
                .parent()
                .unwrap()
                .join(link.split('#').next().unwrap());
            assert!(target.exists(), "{document:?} links to {link}");
        }
    }
}
