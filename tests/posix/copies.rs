//! Copies by the programs of the field: holes, preallocation and shared extents survive them.

use crate::common::calls::{self, seek};
use crate::common::files::content;
use crate::common::venue::Venue;
use crate::common::{have, raw, run, truth};
use crate::everywhere;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

everywhere!(
    tar_carries_holes_and_shared_extents,
    cp_carries_holes_and_shared_extents,
    rsync_carries_holes_and_shared_extents,
    block_counts_are_those_of_the_filesystem_below,
    copies_are_clones,
);

fn read_write(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

/// Data at 0, 1 MiB and 3 MiB, 64 KiB each; a hole at the end.
fn sparse(path: &Path) -> File {
    let file = read_write(path);
    for at in [0, 1 << 20, 3 << 20] {
        file.write_all_at(&content(at, 64 << 10), at).unwrap();
    }
    file.set_len(4 << 20).unwrap();
    file
}

/// The borders of data that a program finds by walking a file.
fn walk(file: &File) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        match seek(file, at, libc::SEEK_DATA) {
            Ok(start) => {
                at = seek(file, start, libc::SEEK_HOLE).unwrap();
                found.push((start, at));
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
                return found;
            }
        }
    }
}

/// A whole file by copy_file_range(2), which clones it.
fn copy(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    let size = from.metadata().unwrap().len();
    let mut done = 0;
    while done < size {
        let most = usize::try_from(size - done).unwrap();
        done += raw::copy_range(&from, done, &to, done, most).unwrap() as u64;
    }
}

/// A tree of files that copying programs get wrong: sparse, preallocated, fully shared, all hole.
fn odd_files(venue: &Venue) -> PathBuf {
    let dir = venue.at("odd");
    let below = venue.backing().join("odd");
    fs::create_dir(&dir).unwrap();
    sparse(&dir.join("sparse"));
    let hole = read_write(&dir.join("hole"));
    hole.set_len(3 << 20).unwrap();
    let reserved = read_write(&dir.join("preallocated"));
    calls::fallocate(&reserved, 0, 0, 2 << 20).unwrap();
    reserved.write_all_at(b"data", 1 << 20).unwrap();
    fs::write(dir.join("original"), content(9, 1 << 20)).unwrap();
    fs::write(dir.join("small"), "tiny").unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    File::open(dir.join("original"))
        .unwrap()
        .sync_all()
        .unwrap();
    for (from, to) in [("original", "clone"), ("sparse", "sparse-clone")] {
        copy(&dir.join(from), &dir.join(to));
    }
    assert_eq!(truth::numbers(&below.join("clone")).exclusive_bytes(), 0);
    dir
}

/// Both trees have the same files with the same content, and the copy has the holes.
fn assert_same(venue: &Venue, from: &Path, to: &Path) {
    let names = calls::names(from).unwrap();
    assert_eq!(names.len(), 8);
    assert_eq!(names, calls::names(to).unwrap());
    run("diff", ["-r", from.to_str().unwrap(), to.to_str().unwrap()]);
    for (name, most) in [("sparse", 600), ("hole", 16), ("sparse-clone", 600)] {
        let meta = fs::metadata(to.join(name)).unwrap();
        assert!(meta.blocks() <= most, "{name}: {} blocks", meta.blocks());
        assert_eq!(meta.len(), fs::metadata(from.join(name)).unwrap().len());
    }
    let below = venue.backing().join(to.strip_prefix(venue.dir()).unwrap());
    run(
        "diff",
        ["-r", to.to_str().unwrap(), below.to_str().unwrap()],
    );
}

fn tar_carries_holes_and_shared_extents(venue: &mut Venue) {
    let odd = odd_files(venue);
    let archive = venue.at("archive.tar");
    run(
        "tar",
        [
            "-C",
            odd.to_str().unwrap(),
            "-Scf",
            archive.to_str().unwrap(),
            ".",
        ],
    );
    let back = venue.at("back");
    fs::create_dir(&back).unwrap();
    run(
        "tar",
        [
            "-C",
            back.to_str().unwrap(),
            "-Sxf",
            archive.to_str().unwrap(),
        ],
    );
    assert_same(venue, &odd, &back);
    // Of 15 MiB of sizes, under 5 are data.
    let most = 5 << 20;
    assert!(
        fs::metadata(&archive).unwrap().len() < most,
        "holes were stored"
    );
}

fn cp_carries_holes_and_shared_extents(venue: &mut Venue) {
    let odd = odd_files(venue);
    for (name, how) in [
        ("always", "--sparse=always"),
        ("auto", "--sparse=auto"),
        ("clone", "--reflink=auto"),
    ] {
        let back = venue.at(name);
        run(
            "cp",
            ["-a", how, odd.to_str().unwrap(), back.to_str().unwrap()],
        );
        assert_same(venue, &odd, &back);
    }
}

fn rsync_carries_holes_and_shared_extents(venue: &mut Venue) {
    if !have("rsync") {
        return;
    }
    let odd = odd_files(venue);
    let back = venue.at("back");
    let from = format!("{}/", odd.display());
    run("rsync", ["-aSXAH", &from, back.to_str().unwrap()]);
    assert_same(venue, &odd, &back);
    // In place over the first copy, with changes.
    fs::write(odd.join("small"), "larger than before").unwrap();
    run(
        "rsync",
        ["-aXAH", "--inplace", &from, back.to_str().unwrap()],
    );
    assert_same(venue, &odd, &back);
}

fn block_counts_are_those_of_the_filesystem_below(venue: &mut Venue) {
    let odd = odd_files(venue);
    nix::unistd::syncfs(File::open(venue.backing()).unwrap()).unwrap();
    calls::drop_caches();
    for name in calls::names(&odd).unwrap() {
        let name = String::from_utf8(name).unwrap();
        let shown = fs::metadata(odd.join(&name)).unwrap();
        let below = fs::metadata(venue.backing().join("odd").join(&name)).unwrap();
        assert_eq!(shown.blocks(), below.blocks(), "{name}");
        assert_eq!(shown.blksize(), below.blksize(), "{name}");
        // Archivers take a file of no blocks for one hole.
        let data = walk(&File::open(odd.join(&name)).unwrap());
        assert!(
            data.is_empty() || shown.blocks() > 0 || shown.len() < 4096,
            "{name}"
        );
    }
}

fn copies_are_clones(venue: &mut Venue) {
    let (from, to) = (venue.at("from"), venue.at("to"));
    fs::write(&from, content(4, 1 << 20)).unwrap();
    run(
        "cp",
        [
            "--reflink=auto",
            from.to_str().unwrap(),
            to.to_str().unwrap(),
        ],
    );
    assert_eq!(fs::read(&to).unwrap(), content(4, 1 << 20));
    for name in ["from", "to"] {
        let numbers = truth::numbers(&venue.backing().join(name));
        assert_eq!(numbers.shared_bytes, 1 << 20, "{name}");
    }
}
