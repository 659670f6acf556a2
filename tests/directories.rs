//! Totals of directories on real filesystems, without a mount: scans, changes told and changes
//! behind, against sums made by code of the tests' own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, content, write_at, write_synced};
use common::truth::{self, Numbers};
use common::{Image, run};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sharelens::extent::{Bytes, ShareSummary};
use sharelens::fs::backing::DiskBacking;
use sharelens::fs::device::DeviceTable;
use sharelens::sharing::tree::{Child, NameChange};
use sharelens::sharing::{AskError, Change, DirTotals, Directories, Engine, FileKey, Limits};
use sharelens::sys::handle::RawHandle;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct World {
    directories: Arc<Directories<DiskBacking>>,
}

impl World {
    fn on(source: &Path) -> Self {
        let source = File::open(source).unwrap();
        let table = DeviceTable::new(source.as_fd()).unwrap();
        let engine = Engine::new(DiskBacking::new(Arc::new(table)), Limits::default());
        engine.start().unwrap();
        Self {
            directories: Directories::new(engine, 2),
        }
    }

    fn engine(&self) -> &Arc<Engine<DiskBacking>> {
        self.directories.engine()
    }

    fn key(&self, path: &Path) -> FileKey {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
            .open(path)
            .unwrap();
        let device = self
            .engine()
            .backing()
            .devices()
            .learn(file.as_fd())
            .unwrap();
        let parts = RawHandle::of(file.as_fd(), c"").unwrap().parts().unwrap();
        FileKey {
            ino: parts.ino,
            generation: parts.generation,
            device: device.index,
        }
    }

    fn child(&self, path: &Path) -> Child {
        let kind = fs::symlink_metadata(path).unwrap().file_type();
        if kind.is_dir() {
            Child::Directory(self.key(path))
        } else if kind.is_file() {
            Child::File(self.key(path))
        } else {
            Child::Other
        }
    }

    fn totals(&self, path: &Path) -> DirTotals {
        self.directories.totals(self.key(path)).unwrap()
    }

    #[track_caller]
    fn check(&self, path: &Path) {
        let found = self.totals(path);
        assert_eq!(found, recount(path), "{}", path.display());
    }
}

/// The totals by walking, mapping and counting bytes.
fn recount(top: &Path) -> DirTotals {
    truth::settle(top);
    let mut totals = DirTotals::default();
    let mut names: BTreeMap<(u64, u64), (u64, PathBuf)> = BTreeMap::new();
    let mut next = vec![top.to_owned()];
    while let Some(dir) = next.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                totals.dirs += 1;
                next.push(entry.path());
            } else if kind.is_file() {
                let meta = entry.metadata().unwrap();
                let id = (meta.dev(), meta.ino());
                names.entry(id).or_insert((0, entry.path())).0 += 1;
            }
        }
    }
    let mut blocks = BTreeSet::new();
    let mut keys: BTreeMap<u64, u64> = BTreeMap::new();
    for (count, path) in names.values() {
        let pieces = truth::map_unsettled(path);
        let numbers = Numbers::of(&pieces);
        totals.files += 1;
        totals.numbers.bytes += Bytes(numbers.bytes);
        totals.numbers.shared_bytes += Bytes(numbers.shared_bytes);
        totals.numbers.extents += numbers.extents;
        totals.numbers.shared_extents += numbers.shared_extents;
        if fs::metadata(path).unwrap().nlink() > *count {
            totals.linked_outside_bytes += Bytes(numbers.bytes);
        }
        for piece in pieces
            .iter()
            .filter(|piece| piece.flags & truth::SHARED != 0)
        {
            if piece.flags & truth::ENCODED != 0 {
                let most = keys.entry(piece.physical).or_default();
                *most = piece.length.max(*most);
            } else {
                let range = piece.physical / 4096..(piece.physical + piece.length).div_ceil(4096);
                blocks.extend(range);
            }
        }
    }
    totals.set_shared_bytes = Bytes(blocks.len() as u64 * 4096 + keys.values().sum::<u64>());
    totals
}

fn images() -> Vec<Image> {
    [Image::xfs(), Image::btrfs()]
        .into_iter()
        .flatten()
        .collect()
}

/// W4's first example with its directory row.
#[test]
fn the_directory_row_of_a_rewritten_half() {
    for image in images() {
        let tree = image.tree();
        let (foo, bar, baz) = (tree.join("foo"), tree.join("bar"), tree.join("baz"));
        write_synced(&foo, 1, 2 << 20);
        clone(&foo, &bar);
        clone(&foo, &baz);
        truth::settle(&tree);
        let world = World::on(&tree);
        let before = world.totals(&tree);
        assert_eq!(before.numbers.bytes, Bytes(6 << 20));
        assert_eq!(before.numbers.exclusive_bytes(), Bytes(0));
        assert_eq!(before.set_shared_bytes, Bytes(2 << 20));
        let open = world.engine().begin(Change::OpenForWrite {
            file: world.key(&foo),
            direct: false,
        });
        drop(open);
        write_at(&foo, 1 << 20, &content(2, 1 << 20));
        drop(world.engine().begin(Change::CloseForWrite {
            file: world.key(&foo),
            direct: false,
        }));
        let after = world.totals(&tree);
        assert_eq!(after.numbers.bytes, Bytes(6 << 20));
        assert_eq!(after.numbers.exclusive_bytes(), Bytes(1 << 20));
        assert_eq!(after.set_shared_bytes, Bytes(2 << 20));
        assert_eq!(after.footprint_bytes(), Bytes(3 << 20));
        world.check(&tree);
    }
}

#[test]
fn hard_links_count_once_wherever_they_have_a_name() {
    for image in images() {
        let tree = image.tree();
        fs::create_dir_all(tree.join("a/deep")).unwrap();
        fs::create_dir_all(tree.join("b")).unwrap();
        write_synced(&tree.join("a/deep/x"), 1, 40_000);
        fs::hard_link(tree.join("a/deep/x"), tree.join("b/x")).unwrap();
        fs::hard_link(tree.join("a/deep/x"), tree.join("b/again")).unwrap();
        write_synced(&image.path().join("outside"), 2, 50_000);
        fs::hard_link(image.path().join("outside"), tree.join("a/inside")).unwrap();
        let world = World::on(&tree);
        for dir in ["", "a", "b", "a/deep"] {
            world.check(&tree.join(dir));
        }
        let whole = world.totals(&tree);
        assert_eq!((whole.files, whole.dirs), (2, 3));
        assert_eq!(whole.linked_outside_bytes, Bytes(53_248));
    }
}

#[test]
fn what_is_mounted_below_is_left_out_and_counted() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("x"), 1, 40_000);
    fs::create_dir_all(tree.join("other")).unwrap();
    fs::create_dir_all(tree.join("loop")).unwrap();
    run(
        "mount",
        [
            "-t".as_ref(),
            "tmpfs".as_ref(),
            "none".as_ref(),
            tree.join("other").as_os_str(),
        ],
    );
    run(
        "mount",
        [
            "--bind".as_ref(),
            tree.as_os_str(),
            tree.join("loop").as_os_str(),
        ],
    );
    fs::write(tree.join("other/y"), "y").unwrap();
    let world = World::on(&tree);
    let totals = world.totals(&tree);
    assert_eq!((totals.files, totals.numbers.bytes), (1, Bytes(40_960)));
    assert_eq!(world.directories.scan_state().elsewhere, 2);
}

#[test]
fn a_snapshot_below_is_counted_and_shares() {
    let Some(image) = Image::btrfs() else { return };
    let tree = image.tree();
    run(
        "btrfs",
        [
            "-q".as_ref(),
            "subvolume".as_ref(),
            "create".as_ref(),
            tree.join("sub").as_os_str(),
        ],
    );
    for number in 0..20 {
        write_synced(&tree.join(format!("sub/{number}")), number, 30_000);
    }
    let world = World::on(&tree);
    let before = world.totals(&tree);
    assert_eq!(before.numbers.shared_bytes, Bytes(0));
    run(
        "btrfs",
        [
            "-q".as_ref(),
            "subvolume".as_ref(),
            "snapshot".as_ref(),
            tree.join("sub").as_os_str(),
            tree.join("snap").as_os_str(),
        ],
    );
    world.check(&tree);
    let after = world.totals(&tree);
    assert_eq!(after.files, 40);
    assert_eq!(after.numbers.exclusive_bytes(), Bytes(0));
    assert_eq!(after.set_shared_bytes.0 * 2, after.numbers.bytes.0);
}

#[test]
fn compressed_extents_are_told_apart_by_their_keys() {
    let Some(image) = Image::of(common::Kind::Btrfs)
        .options("compress-force=zstd")
        .make()
    else {
        return;
    };
    let tree = image.tree();
    fs::write(tree.join("a"), vec![7; 1 << 20]).unwrap();
    truth::settle(&tree);
    clone(&tree.join("a"), &tree.join("b"));
    let world = World::on(&tree);
    world.check(&tree);
    assert_eq!(world.totals(&tree).set_shared_bytes, Bytes(1 << 20));
}

/// Changes by another process, seen through the watch on the filesystem.
#[test]
fn changes_behind_are_seen_at_the_next_question() {
    for image in images() {
        let tree = image.tree();
        fs::create_dir_all(tree.join("d/e")).unwrap();
        for number in 0..30 {
            write_synced(
                &tree.join(format!("d/e/{number}")),
                number,
                10_000 + number as usize * 1000,
            );
        }
        let world = World::on(&tree);
        world.check(&tree);
        let sh = |script: &str| run("sh", ["-c", &format!("cd {} && {script}", tree.display())]);
        for script in [
            "cp --reflink=always d/e/1 d/one",
            "cp -r --reflink=always d copy",
            "rm copy/e/5 d/e/6",
            "mv copy/e moved",
            "ln moved/7 d/seven",
            "rm -r d",
            "mkdir d && mv moved d/ && mv copy d/moved/",
            "printf xyz >> d/moved/9",
            "truncate -s 5000 d/moved/10",
            "mv d/moved/11 d/moved/12",
        ] {
            sh(script);
            world.check(&tree);
        }
    }
}

/// A filesystem in miniature, which tells of what it does as the real one does.
struct Actor<'a> {
    world: &'a World,
    top: PathBuf,
    rng: ChaCha8Rng,
}

impl Actor<'_> {
    fn walk(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let (mut dirs, mut files) = (vec![self.top.clone()], Vec::new());
        let mut at = 0;
        while at < dirs.len() {
            let mut names: Vec<_> = fs::read_dir(&dirs[at])
                .unwrap()
                .map(|it| it.unwrap().path())
                .collect();
            names.sort();
            for path in names {
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    files.push(path);
                }
            }
            at += 1;
        }
        (dirs, files)
    }

    fn names(&self, dirs: &[&Path], change: impl FnOnce() -> Vec<NameChange>) {
        let keys: Vec<_> = dirs.iter().map(|dir| self.world.key(dir)).collect();
        let guard = self.world.directories.begin_names(&keys);
        let changes = change();
        guard.done(&changes);
    }

    fn step(&mut self) {
        let (dirs, files) = self.walk();
        let dir = dirs[self.rng.random_range(0..dirs.len())].clone();
        let name = dir.join(format!("n{}", self.rng.random_range(0..12)));
        let file =
            (!files.is_empty()).then(|| files[self.rng.random_range(0..files.len())].clone());
        let seed = self.rng.random();
        let world = self.world;
        let engine = world.engine();
        let op = self.rng.random_range(0..12);
        match (op, file) {
            (0 | 1, _) if !name.exists() => self.names(&[&dir], || {
                let file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&name)
                    .unwrap();
                let key = world.key(&name);
                engine.created(key);
                drop(engine.begin(Change::OpenForWrite {
                    file: key,
                    direct: false,
                }));
                let length = (seed % 60_000) as usize;
                file.write_all_at(&content(seed, length), 0).unwrap();
                drop(file);
                drop(engine.begin(Change::CloseForWrite {
                    file: key,
                    direct: false,
                }));
                vec![NameChange::Added {
                    directory: world.key(&dir),
                    child: world.child(&name),
                }]
            }),
            (2, _) if !name.exists() && dirs.len() < 12 => self.names(&[&dir], || {
                fs::create_dir(&name).unwrap();
                vec![NameChange::Added {
                    directory: world.key(&dir),
                    child: world.child(&name),
                }]
            }),
            (3, Some(file)) if !name.exists() => self.names(&[&dir], || {
                fs::hard_link(&file, &name).unwrap();
                vec![NameChange::Added {
                    directory: world.key(&dir),
                    child: world.child(&name),
                }]
            }),
            (4, Some(file)) => {
                let key = world.key(&file);
                drop(engine.begin(Change::OpenForWrite {
                    file: key,
                    direct: false,
                }));
                write_at(&file, seed % 80_000, &content(seed, 5000));
                drop(engine.begin(Change::CloseForWrite {
                    file: key,
                    direct: false,
                }));
            }
            (5, Some(file)) => {
                let guard = engine.begin(Change::Truncate(world.key(&file)));
                OpenOptions::new()
                    .write(true)
                    .open(&file)
                    .unwrap()
                    .set_len(seed % 80_000)
                    .unwrap();
                drop(guard);
            }
            (6 | 7, Some(file)) => {
                let to = files[self.rng.random_range(0..files.len())].clone();
                if fs::metadata(&to).unwrap().ino() == fs::metadata(&file).unwrap().ino() {
                    return;
                }
                let guard = engine.begin(Change::Copy {
                    from: world.key(&file),
                    to: world.key(&to),
                });
                let source = File::open(&file).unwrap();
                let target = OpenOptions::new()
                    .write(true)
                    .truncate(true)
                    .open(&to)
                    .unwrap();
                common::raw::clone_file(&source, &target).unwrap();
                drop(guard);
            }
            (8, Some(file)) => {
                let (parent, child) = (file.parent().unwrap().to_owned(), world.child(&file));
                let last = fs::metadata(&file).unwrap().nlink() == 1;
                let guard = engine.begin(Change::Unname {
                    file: world.key(&file),
                    last,
                });
                self.names(&[&parent], || {
                    fs::remove_file(&file).unwrap();
                    vec![NameChange::Removed {
                        directory: world.key(&parent),
                        child,
                    }]
                });
                drop(guard);
            }
            (9 | 10, _) => self.rename(&dirs, &files, &dir, &name),
            _ => {}
        }
    }

    fn rename(&mut self, dirs: &[PathBuf], files: &[PathBuf], dir: &Path, name: &Path) {
        let world = self.world;
        let engine = world.engine();
        let pick = self.rng.random_range(0..dirs.len() + files.len());
        let what = dirs.iter().chain(files).nth(pick).unwrap();
        if what == &self.top || name.starts_with(what) || name.is_dir() || what == name {
            return;
        }
        if what.is_dir() && name.exists() {
            return;
        }
        let from = what.parent().unwrap();
        let moved = world.child(what);
        let replaced = name
            .exists()
            .then(|| (world.child(name), fs::metadata(name).unwrap()));
        if replaced.as_ref().is_some_and(|(child, _)| *child == moved) {
            return;
        }
        let guard = replaced.as_ref().map(|(_, meta)| {
            engine.begin(Change::Unname {
                file: world.key(name),
                last: meta.nlink() == 1,
            })
        });
        self.names(&[from, dir], || {
            fs::rename(what, name).unwrap();
            let mut changes = Vec::new();
            if let Some((child, _)) = &replaced {
                changes.push(NameChange::Removed {
                    directory: world.key(dir),
                    child: *child,
                });
            }
            changes.push(NameChange::Moved {
                from: world.key(from),
                to: world.key(dir),
                child: moved,
            });
            changes
        });
        drop(guard);
    }
}

#[test]
fn random_changes_are_in_every_total() {
    for image in images() {
        for seed in 0..3 {
            let top = image.path().join(format!("random-{seed}"));
            fs::create_dir_all(&top).unwrap();
            let world = World::on(&top);
            let mut actor = Actor {
                world: &world,
                top: top.clone(),
                rng: ChaCha8Rng::seed_from_u64(seed),
            };
            for step in 0..600 {
                actor.step();
                if step % 7 == 0 {
                    let (dirs, _) = actor.walk();
                    let dir = dirs[actor.rng.random_range(0..dirs.len())].clone();
                    let found = world.totals(&dir);
                    let expected = recount(&dir);
                    assert_eq!(
                        found,
                        expected,
                        "{:?}, seed {seed}, step {step}, {}",
                        image.kind(),
                        dir.display()
                    );
                }
            }
            let (dirs, _) = actor.walk();
            for dir in dirs {
                world.check(&dir);
            }
        }
    }
}

/// Agreement with `btrfs filesystem du`, row by row.
#[test]
fn totals_agree_with_btrfs_filesystem_du() {
    let Some(image) = Image::btrfs() else { return };
    let tree = image.tree();
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut files = Vec::new();
    for dir in ["a", "a/b", "a/b/c", "d", "d/e"] {
        fs::create_dir_all(tree.join(dir)).unwrap();
        for number in 0..10 {
            let path = tree.join(dir).join(format!("f{number}"));
            // Longer than what would be inline.
            write_synced(&path, rng.random(), rng.random_range(5_000..300_000));
            files.push(path);
        }
    }
    for number in 0..60 {
        let from = &files[rng.random_range(0..files.len())];
        clone(from, &tree.join("a/b").join(format!("clone{number}")));
    }
    for path in &files {
        if rng.random_bool(0.4) {
            write_at(
                path,
                rng.random_range(0..20) * 4096,
                &content(rng.random(), 8192),
            );
        }
    }
    truth::settle(&tree);
    let world = World::on(&tree);
    for dir in ["", "a", "a/b", "a/b/c", "d", "d/e"] {
        let path = tree.join(dir);
        let totals = world.totals(&path);
        let row = run(
            "btrfs",
            [
                "filesystem".as_ref(),
                "du".as_ref(),
                "-s".as_ref(),
                "--raw".as_ref(),
                path.as_os_str(),
            ],
        );
        let row: Vec<u64> = row
            .lines()
            .last()
            .unwrap()
            .split_whitespace()
            .filter_map(|column| column.parse().ok())
            .collect();
        let ours = [
            totals.numbers.bytes,
            totals.numbers.exclusive_bytes(),
            totals.set_shared_bytes,
        ]
        .map(|it| it.0);
        assert_eq!(ours.as_slice(), row, "{dir}");
    }
}

#[test]
fn a_question_about_a_removed_directory_says_that_it_is_gone() {
    for image in images() {
        let tree = image.tree();
        let gone = tree.join("gone");
        fs::create_dir(&gone).unwrap();
        let world = World::on(&tree);
        let key = world.key(&gone);
        assert_eq!(world.totals(&gone), DirTotals::default());
        run("rmdir", [gone.as_os_str()]);
        assert!(matches!(world.directories.totals(key), Err(AskError::Gone)));
        let _: ShareSummary = world.totals(&tree).numbers;
    }
}

/// A change so large that the engine gives up everything shared at once, and a question about the
/// file before the one about its directory.
#[test]
fn what_is_given_up_at_once_is_not_forgotten_when_a_file_is_asked_first() {
    for image in images() {
        let tree = image.tree();
        let (a, big) = (tree.join("a"), image.path().join("big"));
        write_synced(&a, 1, 2400 * 4096);
        clone(&a, &big);
        for block in 0..1200 {
            write_at(&big, block * 2 * 4096, &content(block, 4096));
        }
        truth::settle(&tree);
        let world = World::on(&tree);
        world.check(&tree);
        let before = world.engine().stats().epochs;
        let guard = world.engine().begin(Change::Truncate(world.key(&big)));
        OpenOptions::new()
            .write(true)
            .open(&big)
            .unwrap()
            .set_len(0)
            .unwrap();
        drop(guard);
        assert!(world.engine().stats().epochs > before);
        let asked = world.engine().summary(world.key(&a)).unwrap();
        assert_eq!(asked.shared_bytes, Bytes(0));
        assert_eq!(world.totals(&tree).numbers, asked);
        world.check(&tree);
    }
}

/// A file that is open for write but not written is not mapped again by each question.
#[test]
fn an_open_but_unchanged_file_is_not_mapped_again() {
    for image in images() {
        let tree = image.tree();
        write_synced(&tree.join("a"), 1, 100_000);
        clone(&tree.join("a"), &tree.join("b"));
        truth::settle(&tree);
        let world = World::on(&tree);
        let key = world.key(&tree.join("a"));
        let open = world.engine().begin(Change::OpenForWrite {
            file: key,
            direct: false,
        });
        drop(open);
        let file = OpenOptions::new().write(true).open(tree.join("a")).unwrap();
        // ctimes are told apart only after a while.
        world.check(&tree);
        std::thread::sleep(std::time::Duration::from_millis(1500));
        world.check(&tree);
        world.check(&tree);
        let before = world.engine().stats().fiemap_calls;
        for _ in 0..10 {
            world.totals(&tree);
        }
        assert_eq!(world.engine().stats().fiemap_calls, before);
        file.write_all_at(&content(3, 4096), 0).unwrap();
        world.check(&tree);
        drop(file);
        drop(world.engine().begin(Change::CloseForWrite {
            file: key,
            direct: false,
        }));
        world.check(&tree);
    }
}

/// A file that is there all the time counts once, also while it, or a directory above it, moves.
#[test]
fn what_moves_during_questions_counts_once() {
    use std::sync::atomic::{AtomicBool, Ordering};
    for image in images() {
        let tree = image.tree();
        for dir in ["a/x", "b/y", "c"] {
            fs::create_dir_all(tree.join(dir)).unwrap();
        }
        for number in 0..40 {
            write_synced(&tree.join(format!("a/x/{number}")), number, 5000);
        }
        truth::settle(&tree);
        for round in 0..5 {
            // Each time from the start, so that directories are being read while things move.
            let world = World::on(&tree);
            let done = AtomicBool::new(false);
            let tree = &tree;
            std::thread::scope(|scope| {
                let mover = scope.spawn(|| {
                    let mut rng = ChaCha8Rng::seed_from_u64(round);
                    while !done.load(Ordering::Relaxed) {
                        let dirs = ["a/x", "b/y", "c", "a/y", "b/x"];
                        let there = |dir: &&&str| tree.join(dir).is_dir();
                        let from = dirs
                            .iter()
                            .filter(there)
                            .nth(rng.random_range(0..3))
                            .unwrap();
                        let to = dirs
                            .iter()
                            .filter(there)
                            .nth(rng.random_range(0..3))
                            .unwrap();
                        let (from, to) = (tree.join(from), tree.join(to));
                        let entry = fs::read_dir(&from).unwrap().next();
                        let (what, name, to) = match entry {
                            Some(entry) if rng.random_bool(0.8) => {
                                let entry = entry.unwrap();
                                (entry.path(), to.join(entry.file_name()), to)
                            }
                            // The directory itself, between a and b.
                            _ if from != tree.join("c") => {
                                let other = if from.starts_with(tree.join("a")) {
                                    "b"
                                } else {
                                    "a"
                                };
                                let to = tree.join(other);
                                let name = to.join(from.file_name().unwrap());
                                (from, name, to)
                            }
                            _ => continue,
                        };
                        if name.exists() || what.parent().unwrap() == to {
                            continue;
                        }
                        let from = what.parent().unwrap().to_owned();
                        let change = NameChange::Moved {
                            from: world.key(&from),
                            to: world.key(&to),
                            child: world.child(&what),
                        };
                        let keys = [world.key(&from), world.key(&to)];
                        let guard = world.directories.begin_names(&keys);
                        fs::rename(&what, &name).unwrap();
                        guard.done(&[change]);
                    }
                });
                let askers: Vec<_> = (0..2)
                    .map(|_| {
                        scope.spawn(|| {
                            for _ in 0..200 {
                                let totals = world.totals(tree);
                                assert_eq!((totals.files, totals.dirs), (40, 5));
                                assert_eq!(totals.numbers.bytes, Bytes(40 * 8192));
                            }
                        })
                    })
                    .collect();
                let failed = askers.into_iter().any(|asker| asker.join().is_err());
                done.store(true, Ordering::Relaxed);
                mover.join().unwrap();
                assert!(!failed);
            });
            world.check(tree);
        }
    }
}
