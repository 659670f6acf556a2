//! The tree against a disk that is recounted at each question, over generated histories.

use super::*;
use crate::extent::{Bytes, ShareSummary};
use crate::sharing::distinct::{SharedPart, SharedParts};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Name = u8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Node {
    File(u64),
    Dir(u64),
}

#[derive(Clone, Default)]
struct Disk {
    dirs: BTreeMap<u64, BTreeMap<Name, Node>>,
    files: BTreeMap<u64, (ShareSummary, SharedParts)>,
    next: u64,
}

fn key(ino: u64) -> FileKey {
    FileKey {
        ino,
        generation: 1,
        device: DeviceIndex(0),
    }
}

fn child(node: Node) -> Child {
    match node {
        Node::File(ino) => Child::File(key(ino)),
        Node::Dir(ino) => Child::Directory(key(ino)),
    }
}

impl Disk {
    fn new() -> Self {
        let mut disk = Self {
            next: 2,
            ..Self::default()
        };
        disk.dirs.insert(1, BTreeMap::new());
        disk
    }

    fn links(&self, ino: u64) -> u32 {
        self.dirs
            .values()
            .flat_map(BTreeMap::values)
            .filter(|&&node| node == Node::File(ino))
            .count() as u32
    }

    fn entries(&self, dir: u64) -> Vec<Entry> {
        let Some(entries) = self.dirs.get(&dir) else {
            return Vec::new();
        };
        entries
            .values()
            .map(|&node| match node {
                Node::File(ino) => Entry::File {
                    key: key(ino),
                    links: self.links(ino),
                    measured: (ino % 2 == 0).then(|| (self.measure(ino), Trust::Settled)),
                },
                Node::Dir(ino) => Entry::Directory(key(ino)),
            })
            .collect()
    }

    fn measure(&self, ino: u64) -> Measured {
        let (numbers, parts) = self.files[&ino].clone();
        Measured {
            numbers,
            parts,
            links: self.links(ino),
            unreadable: false,
        }
    }

    fn below(&self, dir: u64) -> (u64, Vec<u64>) {
        let (mut dirs, mut files) = (0, Vec::new());
        for node in self.dirs[&dir].values() {
            match *node {
                Node::File(ino) => files.push(ino),
                Node::Dir(ino) => {
                    let (more, found) = self.below(ino);
                    dirs += more + 1;
                    files.extend(found);
                }
            }
        }
        (dirs, files)
    }

    fn totals(&self, dir: u64) -> DirTotals {
        let (dirs, names) = self.below(dir);
        let mut totals = DirTotals {
            dirs,
            ..DirTotals::default()
        };
        let mut blocks = BTreeSet::new();
        for ino in names.iter().copied().collect::<BTreeSet<_>>() {
            let (numbers, parts) = &self.files[&ino];
            totals.files += 1;
            totals.numbers.bytes += numbers.bytes;
            totals.numbers.shared_bytes += numbers.shared_bytes;
            totals.numbers.extents += numbers.extents;
            totals.numbers.shared_extents += numbers.shared_extents;
            let here = names.iter().filter(|&&name| name == ino).count() as u32;
            if self.links(ino) > here {
                totals.linked_outside_bytes += numbers.bytes;
            }
            for part in parts.as_slice() {
                blocks.extend(part.start..part.start + part.length);
            }
        }
        totals.set_shared_bytes = Bytes(blocks.len() as u64);
        totals
    }
}

#[derive(Clone, Debug)]
enum Op {
    Create(usize, Name),
    Mkdir(usize, Name),
    Link(usize, usize, Name),
    Remove(usize, usize),
    Rename(usize, usize, usize, Name, bool),
    Change(usize, Vec<(u64, u64)>, u64),
    Ask(usize),
    /// Begins to read a directory, and ends the one begun before.
    Read(usize),
    /// Begins to look at a file, and ends the look begun before.
    Look(usize, bool),
    /// Removes a directory with all below, behind the mount.
    RemoveTree(usize),
}

fn op() -> impl Strategy<Value = (Op, bool)> {
    let name = 0..4_u8;
    let pick = || any::<usize>();
    let op = prop_oneof![
        3 => (pick(), name.clone()).prop_map(|(d, n)| Op::Create(d, n)),
        2 => (pick(), name.clone()).prop_map(|(d, n)| Op::Mkdir(d, n)),
        2 => (pick(), pick(), name.clone()).prop_map(|(f, d, n)| Op::Link(f, d, n)),
        2 => (pick(), pick()).prop_map(|(d, e)| Op::Remove(d, e)),
        4 => (pick(), pick(), pick(), name, any::<bool>())
            .prop_map(|(d, e, to, n, x)| Op::Rename(d, e, to, n, x)),
        4 => (pick(), prop::collection::vec((0..40_u64, 1..9_u64), 0..4), 0..50_u64)
            .prop_map(|(f, parts, more)| Op::Change(f, parts, more)),
        5 => pick().prop_map(Op::Ask),
        3 => pick().prop_map(Op::Read),
        2 => (pick(), any::<bool>()).prop_map(|(f, once)| Op::Look(f, once)),
        1 => pick().prop_map(Op::RemoveTree),
    ];
    (op, prop::bool::weighted(0.3))
}

struct World {
    disk: Disk,
    tree: Tree,
    reading: Option<(Token, Vec<Entry>, Tick)>,
    look: Option<(u64, Tick, Measured, Trust)>,
}

impl World {
    fn dir(&self, pick: usize) -> u64 {
        *self
            .disk
            .dirs
            .keys()
            .nth(pick % self.disk.dirs.len())
            .unwrap()
    }

    fn file(&self, pick: usize) -> Option<u64> {
        let count = self.disk.files.len();
        (count > 0).then(|| *self.disk.files.keys().nth(pick % count).unwrap())
    }

    fn entry(&self, dir: u64, pick: usize) -> Option<(Name, Node)> {
        let entries = &self.disk.dirs[&dir];
        (!entries.is_empty()).then(|| {
            let (name, node) = entries.iter().nth(pick % entries.len()).unwrap();
            (*name, *node)
        })
    }

    /// Makes a change of names, told as it happens or only afterwards as events behind the mount.
    fn rename_like(
        &mut self,
        foreign: bool,
        dirs: &[u64],
        files: &[u64],
        change: impl FnOnce(&mut Disk) -> Vec<NameChange>,
    ) {
        if foreign {
            change(&mut self.disk);
            for &dir in dirs {
                self.tree.mark_listing(key(dir));
            }
            for &file in files {
                self.tree.mark(key(file));
            }
        } else {
            let keys: Vec<_> = dirs.iter().copied().map(key).collect();
            let names = self.tree.begin_names(&keys);
            let changes = change(&mut self.disk);
            self.tree.end_names(names, Some(&changes));
        }
        let named: BTreeSet<u64> = self
            .disk
            .dirs
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|node| match node {
                Node::File(ino) => Some(*ino),
                Node::Dir(_) => None,
            })
            .collect();
        self.disk.files.retain(|ino, _| named.contains(ino));
    }

    fn put(&mut self, foreign: bool, dir: u64, name: Name, node: Node) {
        let files = match node {
            Node::File(ino) => vec![ino],
            Node::Dir(_) => vec![],
        };
        self.rename_like(foreign, &[dir], &files, |disk| {
            disk.dirs.get_mut(&dir).unwrap().insert(name, node);
            vec![NameChange::Added {
                directory: key(dir),
                child: child(node),
            }]
        });
    }

    fn run(&mut self, op: Op, foreign: bool) -> Result<(), TestCaseError> {
        match op {
            Op::Create(dir, name) => {
                let dir = self.dir(dir);
                if !self.disk.dirs[&dir].contains_key(&name) {
                    let ino = self.disk.next;
                    self.disk.next += 1;
                    self.disk.files.insert(ino, Default::default());
                    self.put(foreign, dir, name, Node::File(ino));
                }
            }
            Op::Mkdir(dir, name) => {
                let dir = self.dir(dir);
                if !self.disk.dirs[&dir].contains_key(&name) {
                    let ino = self.disk.next;
                    self.disk.next += 1;
                    self.disk.dirs.insert(ino, BTreeMap::new());
                    self.put(foreign, dir, name, Node::Dir(ino));
                }
            }
            Op::Link(file, dir, name) => {
                let dir = self.dir(dir);
                if let Some(file) = self.file(file)
                    && !self.disk.dirs[&dir].contains_key(&name)
                {
                    self.put(foreign, dir, name, Node::File(file));
                }
            }
            Op::Remove(dir, pick) => {
                let dir = self.dir(dir);
                match self.entry(dir, pick) {
                    Some((_, Node::Dir(ino))) if !self.disk.dirs[&ino].is_empty() => {}
                    Some((name, node)) => self.remove(foreign, dir, name, node),
                    None => {}
                }
            }
            Op::RemoveTree(dir) => {
                let dir = self.dir(dir);
                let holder = self.disk.dirs.iter().find_map(|(&holder, entries)| {
                    let (&name, _) = entries.iter().find(|&(_, &node)| node == Node::Dir(dir))?;
                    Some((holder, name))
                });
                if let Some((holder, name)) = holder {
                    let (_, files) = self.disk.below(dir);
                    self.rename_like(true, &[holder, dir], &files, |disk| {
                        fn gone(disk: &mut Disk, dir: u64) {
                            for node in disk.dirs.remove(&dir).unwrap().into_values() {
                                if let Node::Dir(ino) = node {
                                    gone(disk, ino);
                                }
                            }
                        }
                        gone(disk, dir);
                        disk.dirs.get_mut(&holder).unwrap().remove(&name);
                        vec![]
                    });
                    self.tree.forget(key(dir));
                    let dirs: Vec<u64> = self.disk.dirs.keys().copied().collect();
                    for ino in (1..self.disk.next).filter(|ino| !dirs.contains(ino)) {
                        self.tree.forget(key(ino));
                    }
                }
            }
            Op::Rename(from, pick, to, name, exchange) => {
                let (from, to) = (self.dir(from), self.dir(to));
                if let Some((old, node)) = self.entry(from, pick) {
                    self.rename(foreign, (from, old, node), to, name, exchange);
                }
            }
            Op::Change(file, parts, more) => {
                if let Some(ino) = self.file(file) {
                    let parts: Vec<SharedPart> = parts
                        .into_iter()
                        .map(|(start, length)| SharedPart {
                            encoded: false,
                            start,
                            length,
                        })
                        .collect();
                    let shared = parts.iter().map(|part| part.length).sum::<u64>();
                    let numbers = ShareSummary {
                        bytes: Bytes(shared + more),
                        shared_bytes: Bytes(shared),
                        extents: parts.len() as u64 + 1,
                        shared_extents: parts.len() as u64,
                    };
                    self.disk
                        .files
                        .insert(ino, (numbers, SharedParts::normalise(parts)));
                    self.tree.mark(key(ino));
                }
            }
            Op::Ask(dir) => {
                let dir = self.dir(dir);
                self.ask(dir)?;
            }
            Op::Read(dir) => {
                if let Some((token, entries, began)) = self.reading.take() {
                    if token.is_first() {
                        self.tree.extend(&token, began, entries);
                        self.tree.finish(token);
                    } else {
                        self.tree.replace(token, entries);
                    }
                }
                let dir = self.dir(dir);
                self.reading = self.tree.claim(key(dir)).map(|token| {
                    let began = self.tree.tick();
                    (token, self.disk.entries(dir), began)
                });
            }
            Op::Look(file, once) => {
                if let Some((ino, began, measured, trust)) = self.look.take() {
                    self.tree.settle(key(ino), began, measured, trust);
                }
                self.look = self.file(file).map(|ino| {
                    let trust = if once { Trust::Once } else { Trust::Settled };
                    (ino, self.tree.tick(), self.disk.measure(ino), trust)
                });
            }
        }
        Ok(())
    }

    fn remove(&mut self, foreign: bool, dir: u64, name: Name, node: Node) {
        let files = match node {
            Node::File(ino) => vec![ino],
            Node::Dir(_) => vec![],
        };
        self.rename_like(foreign, &[dir], &files, |disk| {
            disk.dirs.get_mut(&dir).unwrap().remove(&name);
            if let Node::Dir(ino) = node {
                disk.dirs.remove(&ino);
            }
            vec![NameChange::Removed {
                directory: key(dir),
                child: child(node),
            }]
        });
        if let Node::Dir(ino) = node {
            self.tree.forget(key(ino));
        }
    }

    fn rename(
        &mut self,
        foreign: bool,
        old: (u64, Name, Node),
        to: u64,
        name: Name,
        exchange: bool,
    ) {
        let (from, old_name, node) = old;
        let inside = |disk: &Disk, node: Node, dir: u64| match node {
            Node::Dir(top) => {
                fn holds(disk: &Disk, top: u64, dir: u64) -> bool {
                    top == dir
                        || disk.dirs[&top].values().any(|node| match *node {
                            Node::Dir(ino) => holds(disk, ino, dir),
                            Node::File(_) => false,
                        })
                }
                holds(disk, top, dir)
            }
            Node::File(_) => false,
        };
        let target = self.disk.dirs[&to].get(&name).copied();
        if inside(&self.disk, node, to) || target == Some(node) {
            return;
        }
        let mut files = Vec::new();
        for node in [Some(node), target].into_iter().flatten() {
            if let Node::File(ino) = node {
                files.push(ino);
            }
        }
        if exchange {
            let Some(target) = target.filter(|&it| !inside(&self.disk, it, from)) else {
                return;
            };
            self.rename_like(foreign, &[from, to], &files, |disk| {
                disk.dirs.get_mut(&from).unwrap().insert(old_name, target);
                disk.dirs.get_mut(&to).unwrap().insert(name, node);
                let moved = |from, to, node| NameChange::Moved {
                    from: key(from),
                    to: key(to),
                    child: child(node),
                };
                vec![moved(from, to, node), moved(to, from, target)]
            });
            return;
        }
        match (node, target) {
            (_, None) | (Node::File(_), Some(Node::File(_))) => {}
            (Node::Dir(_), Some(Node::Dir(ino))) if self.disk.dirs[&ino].is_empty() => {}
            _ => return,
        }
        let mut gone = None;
        self.rename_like(foreign, &[from, to], &files, |disk| {
            disk.dirs.get_mut(&from).unwrap().remove(&old_name);
            disk.dirs.get_mut(&to).unwrap().insert(name, node);
            let mut changes = Vec::new();
            if let Some(target) = target {
                if let Node::Dir(ino) = target {
                    disk.dirs.remove(&ino);
                    gone = Some(ino);
                }
                changes.push(NameChange::Removed {
                    directory: key(to),
                    child: child(target),
                });
            }
            changes.push(NameChange::Moved {
                from: key(from),
                to: key(to),
                child: child(node),
            });
            changes
        });
        if let Some(ino) = gone {
            self.tree.forget(key(ino));
        }
    }

    fn ask(&mut self, dir: u64) -> Result<(), TestCaseError> {
        self.tree.watch(key(dir));
        let since = self.tree.tick();
        for round in 0.. {
            prop_assert!(round < 100, "a question never ends");
            let work = self.tree.collect(key(dir), since, true);
            if work.is_done() {
                break;
            }
            if work.claimed > 0
                && let Some((token, entries, began)) = self.reading.take()
            {
                if token.is_first() {
                    self.tree.extend(&token, began, entries);
                    self.tree.finish(token);
                } else {
                    self.tree.replace(token, entries);
                }
            }
            for listing in work.listings {
                let token = self.tree.claim(listing).unwrap();
                let entries = self.disk.entries(listing.ino);
                if token.is_first() {
                    let began = self.tree.tick();
                    self.tree.extend(&token, began, entries);
                    prop_assert!(self.tree.finish(token));
                } else {
                    prop_assert!(self.tree.replace(token, entries));
                }
            }
            let began = self.tree.tick();
            for file in work.files {
                if self.disk.files.contains_key(&file.ino) {
                    let measured = self.disk.measure(file.ino);
                    self.tree.settle(file, began, measured, Trust::Settled);
                } else {
                    // Gone: whoever holds it has a listing to be read again.
                    prop_assert!(round < 5, "a removed file stays");
                }
            }
        }
        let totals = self.tree.totals(key(dir));
        prop_assert_eq!(totals, Some(self.disk.totals(dir)));
        let again = self.tree.collect(key(dir), since, true);
        prop_assert!(again.is_done(), "{:?}", again);
        if dir == 1 {
            self.tree.drop_orphans();
            let (files, dirs) = self.tree.len();
            prop_assert!(files <= self.disk.files.len());
            prop_assert!(dirs <= self.disk.dirs.len());
            prop_assert_eq!(self.tree.totals(key(dir)), Some(self.disk.totals(dir)));
        }
        Ok(())
    }
}

fn run_history(history: Vec<(Op, bool)>) -> Result<(), TestCaseError> {
    let mut world = World {
        disk: Disk::new(),
        tree: Tree::new(),
        reading: None,
        look: None,
    };
    for (op, foreign) in history {
        world.run(op, foreign)?;
    }
    let dirs: Vec<u64> = world.disk.dirs.keys().copied().collect();
    for dir in dirs {
        world.ask(dir)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(1500)))]
    #[test]
    fn totals_equal_a_recount(history in prop::collection::vec(op(), 1..120)) {
        run_history(history)?;
    }
}
