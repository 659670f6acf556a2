//! The disk below the engine on real filesystems: what `DiskBacking` and the system calls below it
//! promise, and the kernel's behaviour that the engine is built on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, content, write_at, write_synced};
use common::{Image, Kind, have, run};
use sharelens::extent::{Bytes, ExtentFlags, ExtentMap, FileOffset, MapBuilder, PhysRange};
use sharelens::fs::backing::{DiskBacking, DiskFile};
use sharelens::fs::device::DeviceTable;
use sharelens::sharing::{
    Backing, DeviceIndex, Event, FileKey, Liveness, Removals, SharingUnit, WriteHold,
};
use sharelens::sys::handle::RawHandle;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

/// The disk below a directory, with keys by path.
struct Disk {
    backing: DiskBacking,
}

impl Disk {
    fn on(source: &Path) -> Self {
        let source = File::open(source).unwrap();
        let table = DeviceTable::new(source.as_fd()).unwrap();
        Self {
            backing: DiskBacking::new(Arc::new(table)),
        }
    }

    fn key(&self, path: &Path) -> FileKey {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
            .open(path)
            .unwrap();
        let device = self.backing.devices().learn(file.as_fd()).unwrap();
        let parts = RawHandle::of(file.as_fd(), c"").unwrap().parts().unwrap();
        FileKey {
            ino: parts.ino,
            generation: parts.generation,
            device: device.index,
        }
    }

    fn open(&self, path: &Path) -> DiskFile {
        self.backing.open(self.key(path)).unwrap()
    }

    /// The map now, without writing anything back, read in batches of `batch`.
    fn map_by(&self, path: &Path, batch: usize) -> ExtentMap {
        let file = self.open(path);
        let stamp = self.backing.stamp(&file).unwrap();
        let mut builder = MapBuilder::new(stamp.size, stamp.block);
        let mut records = Vec::new();
        loop {
            records.clear();
            let ended = self
                .backing
                .map(&file, builder.reached(), batch, &mut records)
                .unwrap();
            let wanted = records.iter().all(|record| builder.push(*record));
            if ended || !wanted {
                return builder.finish();
            }
        }
    }

    /// Blocks that are shared, blocks that are not: `"8S 1. 7S"`.
    fn shape(&self, path: &Path) -> String {
        let pieces: Vec<String> = self
            .map_by(path, 1000)
            .extents()
            .iter()
            .map(|extent| {
                format!(
                    "{}{}",
                    extent.length.0 / BLOCK,
                    if extent.is_shared() { 'S' } else { '.' }
                )
            })
            .collect();
        pieces.join(" ")
    }

    fn write_back(&self, path: &Path) {
        self.backing.write_back(&self.open(path)).unwrap();
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.backing.take_events(&mut |event| events.push(event));
        events
    }
}

/// Held by each test: a process that another one has just forked would hold its descriptors until
/// it runs its own program, and so keep files open that must be closed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A, 64 KiB, and B, a clone of it.
fn pair(image: &Image) -> (std::path::PathBuf, std::path::PathBuf) {
    let (a, b) = (image.path().join("a"), image.path().join("b"));
    write_synced(&a, 1, 64 << 10);
    clone(&a, &b);
    (a, b)
}

const SOURCE: DeviceIndex = DeviceIndex(0);

#[test]
fn on_xfs_a_write_to_one_clone_unshares_the_other_once_the_writer_is_written_back() {
    let _alone = alone();
    let Some(image) = Image::xfs() else { return };
    let disk = Disk::on(image.path());
    let (a, b) = pair(&image);
    assert_eq!(
        (disk.shape(&a), disk.shape(&b)),
        ("16S".into(), "16S".into())
    );
    write_at(&b, 8 * BLOCK, &content(2, BLOCK as usize));
    assert_eq!(disk.shape(&a), "16S", "a dirty page is not yet a change");
    disk.write_back(&a);
    assert_eq!(
        disk.shape(&a),
        "16S",
        "writing back the clean one does nothing"
    );
    disk.write_back(&b);
    assert_eq!(disk.shape(&a), "8S 1. 7S");
    assert_eq!(disk.shape(&b), "8S 1. 7S");
    assert_eq!(disk.backing.sharing_unit(SOURCE), SharingUnit::Block);
}

#[test]
fn on_btrfs_an_item_stays_shared_as_long_as_any_part_of_it_is() {
    let _alone = alone();
    let Some(image) = Image::btrfs() else { return };
    let disk = Disk::on(image.path());
    let (a, b) = pair(&image);
    write_at(&b, 8 * BLOCK, &content(2, BLOCK as usize));
    disk.write_back(&b);
    assert_eq!(disk.shape(&a), "16S");
    assert_eq!(disk.shape(&b), "8S 1. 7S");
    let items = |path: &Path| disk.backing.items(&disk.open(path)).unwrap().unwrap();
    let (of_a, of_b) = (items(&a), items(&b));
    assert_eq!(of_a.len(), 1);
    assert_eq!(of_a[0].len(), Bytes(16 * BLOCK));
    assert_eq!(of_b.len(), 2, "the old item, named twice, and the new one");
    assert!(of_b.contains(&of_a[0]));
    std::fs::remove_file(&b).unwrap();
    assert_eq!(disk.shape(&a), "16.");
}

#[test]
fn on_xfs_a_removed_clone_shares_until_removals_are_flushed() {
    let _alone = alone();
    let Some(image) = Image::xfs() else { return };
    let disk = Disk::on(image.path());
    for _ in 0..20 {
        let (a, b) = pair(&image);
        let gone = disk.key(&b);
        std::fs::remove_file(&b).unwrap();
        assert_eq!(
            disk.backing.flush_removals(SOURCE, &[]).unwrap(),
            Removals::Done
        );
        assert_eq!(disk.backing.liveness(gone), Liveness::Gone);
        assert_eq!(disk.shape(&a), "16.");
        std::fs::remove_file(&a).unwrap();
    }
}

#[test]
fn on_xfs_removals_are_carried_out_for_certain_while_others_remove_too() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 3000;
    let _alone = alone();
    let Some(image) = Image::xfs() else { return };
    let disk = Disk::on(image.path());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (disk, image) = (&disk, &image);
            scope.spawn(move || {
                let a = image.path().join(format!("a{thread}"));
                let b = image.path().join(format!("b{thread}"));
                write_synced(&a, 1, 16 * BLOCK as usize);
                for round in 0..ROUNDS {
                    clone(&a, &b);
                    let gone = disk.key(&b);
                    std::fs::remove_file(&b).unwrap();
                    assert_eq!(
                        disk.backing.flush_removals(SOURCE, &[gone]).unwrap(),
                        Removals::Done
                    );
                    assert_eq!(disk.shape(&a), "16.", "round {round}");
                }
            });
        }
    });
}

#[test]
fn a_file_without_names_can_be_opened_until_its_last_descriptor_is_closed() {
    let _alone = alone();
    for image in [Image::xfs(), Image::btrfs()].into_iter().flatten() {
        let disk = Disk::on(image.path());
        let (a, b) = pair(&image);
        let key = disk.key(&b);
        let held = File::open(&b).unwrap();
        std::fs::remove_file(&b).unwrap();
        assert_eq!(disk.backing.liveness(key), Liveness::Alive);
        let opened = disk.backing.open(key).unwrap();
        assert_eq!(disk.backing.stamp(&opened).unwrap().links, 0);
        drop(opened);
        assert_eq!(
            disk.backing.flush_removals(SOURCE, &[]).unwrap(),
            Removals::Done
        );
        assert_eq!(disk.shape(&a), "16S", "it still holds its blocks");
        drop(held);
        assert_eq!(
            disk.backing.flush_removals(SOURCE, &[]).unwrap(),
            Removals::Done
        );
        assert_eq!(disk.backing.liveness(key), Liveness::Gone);
        let error = disk.backing.open(key).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
        assert_eq!(disk.shape(&a), "16.");
    }
}

#[test]
fn a_recycled_inode_number_is_another_file() {
    let _alone = alone();
    let Some(image) = Image::xfs() else { return };
    let disk = Disk::on(image.path());
    let path = image.path().join("f");
    let mut recycled = 0;
    let mut before: Option<FileKey> = None;
    for round in 0..20 {
        std::fs::write(&path, [round]).unwrap();
        let key = disk.key(&path);
        if let Some(old) = before {
            recycled += u32::from(old.ino == key.ino);
            assert_ne!(old, key);
            assert_eq!(disk.backing.liveness(old), Liveness::Gone);
        }
        before = Some(key);
        std::fs::remove_file(&path).unwrap();
        disk.backing.flush_removals(SOURCE, &[]).unwrap();
    }
    assert!(
        recycled > 0,
        "the number was never reused, so nothing was shown"
    );
}

#[test]
fn the_lease_test_tells_whether_anything_has_a_file_open_for_write() {
    let _alone = alone();
    for image in [Image::xfs(), Image::btrfs()].into_iter().flatten() {
        let disk = Disk::on(image.path());
        let path = image.path().join("f");
        write_synced(&path, 1, 64 << 10);
        let file = disk.open(&path);
        let hold = || disk.backing.write_hold(&file).unwrap();
        assert_eq!(hold(), WriteHold::Free);
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(hold(), WriteHold::Held);
        drop(writer);
        assert_eq!(hold(), WriteHold::Free);
        let reader = File::open(&path).unwrap();
        assert_eq!(hold(), WriteHold::Free, "readers do not count");
        drop(reader);
        // A mapping outlives its descriptor; another process holds it, so that no unsafe code is
        // needed here.
        let mut holder = std::process::Command::new("python3")
            .args(["-c", MAPPER, path.to_str().unwrap()])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut ready).unwrap();
        assert_eq!(hold(), WriteHold::Held, "a mapping counts");
        holder.stdin.take().unwrap().write_all(b"x").unwrap();
        holder.wait().unwrap();
        assert_eq!(hold(), WriteHold::Free);
        // The lease was given back each time: an opener that must not wait gets in.
        OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .unwrap();
    }
}

/// Maps a file for writing, closes it, says so, and waits for a byte.
const MAPPER: &str = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 4096, mmap.MAP_SHARED)
os.close(fd)
# mmap keeps a duplicate of the descriptor; what stays is a mapping and a descriptor, both for
# write, which the kernel counts alike.
sys.stdout.write('r'); sys.stdout.flush()
sys.stdin.read(1)
";

#[test]
fn a_large_map_is_the_same_in_batches_of_any_size() {
    let _alone = alone();
    for image in [Image::xfs(), Image::btrfs()].into_iter().flatten() {
        let disk = Disk::on(image.path());
        let path = image.path().join("f");
        let file = File::create(&path).unwrap();
        for block in 0..300 {
            file.write_all_at(&content(block, BLOCK as usize), block * 2 * BLOCK)
                .unwrap();
        }
        file.sync_all().unwrap();
        clone(&path, &image.path().join("g"));
        let whole = disk.map_by(&path, 4096);
        // The holes of XFS are preallocated, so that there are more extents than were written.
        assert_eq!(whole.shared().count(), 300);
        for batch in [1, 7, 299, 300, 301] {
            assert_eq!(disk.map_by(&path, batch), whole, "batches of {batch}");
        }
    }
}

#[test]
fn kinds_of_extents_are_what_the_map_says() {
    let _alone = alone();
    let Some(image) = Image::btrfs() else { return };
    let disk = Disk::on(image.path());
    let flags = |path: &Path| {
        let map = disk.map_by(path, 1000);
        assert_eq!(map.extents().len(), 1, "{path:?}: {map:?}");
        map.extents()[0].flags.difference(ExtentFlags::LAST)
    };
    let small = image.path().join("small");
    std::fs::write(&small, content(1, 100)).unwrap();
    assert!(flags(&small).contains(ExtentFlags::DELALLOC));
    disk.write_back(&small);
    assert!(flags(&small).contains(ExtentFlags::DATA_INLINE));
    assert_eq!(
        disk.backing.items(&disk.open(&small)).unwrap(),
        Some(vec![])
    );
    let allocated = image.path().join("allocated");
    File::create(&allocated).unwrap();
    run("fallocate", ["-l", "64K", allocated.to_str().unwrap()]);
    assert_eq!(flags(&allocated), ExtentFlags::UNWRITTEN);
    clone(&allocated, &image.path().join("allocated too"));
    assert_eq!(
        flags(&allocated),
        ExtentFlags::UNWRITTEN | ExtentFlags::SHARED
    );
    let items = disk.backing.items(&disk.open(&allocated)).unwrap().unwrap();
    assert_eq!(items.len(), 1);
    let hole = image.path().join("hole");
    File::create(&hole).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(disk.map_by(&hole, 1000), ExtentMap::default());
    assert_eq!(disk.backing.items(&disk.open(&hole)).unwrap(), Some(vec![]));
}

#[test]
fn compressed_extents_are_items_whose_key_is_their_start() {
    let _alone = alone();
    let Some(image) = Image::of(Kind::Btrfs).options("compress-force=zstd").make() else {
        return;
    };
    let disk = Disk::on(image.path());
    let (c, m) = (image.path().join("c"), image.path().join("m"));
    let text: Vec<u8> = b"all work and no play makes a dull file\n"
        .iter()
        .copied()
        .cycle()
        .take(1 << 20)
        .collect();
    std::fs::write(&c, &text).unwrap();
    disk.write_back(&c);
    let map = disk.map_by(&c, 1000);
    assert_eq!(map.extents().len(), 8);
    let items = disk.backing.items(&disk.open(&c)).unwrap().unwrap();
    assert_eq!(items.len(), 8);
    for extent in map.extents() {
        assert!(extent.flags.contains(ExtentFlags::ENCODED));
        assert_eq!(extent.length, Bytes(128 << 10), "uncompressed");
        assert!(items.iter().any(|item| item.start == extent.physical));
    }
    assert!(items.iter().all(|item| item.len() < Bytes(128 << 10)));
    // A clone that begins in the middle of the first item.
    run(
        "xfs_io",
        [
            "-f",
            "-c",
            &format!("reflink {} 64k 0 256k", c.display()),
            m.to_str().unwrap(),
        ],
    );
    let of_m = disk.backing.items(&disk.open(&m)).unwrap().unwrap();
    assert_eq!(of_m, items[..3]);
    assert_eq!(disk.map_by(&c, 1000).shared().count(), 3);
    assert_eq!(disk.map_by(&m, 1000).extents()[0].physical, items[0].start);
}

#[test]
fn a_file_that_clones_itself_is_shared_with_itself() {
    let _alone = alone();
    for image in [Image::xfs(), Image::btrfs()].into_iter().flatten() {
        let disk = Disk::on(image.path());
        let path = image.path().join("f");
        write_synced(&path, 1, 64 << 10);
        assert_eq!(disk.shape(&path), "16.");
        let name = path.to_str().unwrap();
        run("xfs_io", ["-c", &format!("reflink {name} 0 64k 64k"), name]);
        assert_eq!(disk.shape(&path), "16S 16S");
        let map = disk.map_by(&path, 1000);
        assert_eq!(map.extents()[0].physical, map.extents()[1].physical);
        run("fallocate", ["-p", "-o", "64K", "-l", "64K", name]);
        assert_eq!(disk.shape(&path), "16.");
    }
}

#[test]
fn parts_of_one_item_share_on_btrfs_without_a_byte_in_common() {
    let _alone = alone();
    let Some(image) = Image::btrfs() else { return };
    let disk = Disk::on(image.path());
    let (e, p, q) = (
        image.path().join("e"),
        image.path().join("p"),
        image.path().join("q"),
    );
    write_synced(&e, 1, 128 << 10);
    for (to, from) in [(&p, "0 0 32k"), (&q, "64k 0 32k")] {
        run(
            "xfs_io",
            [
                "-f",
                "-c",
                &format!("reflink {} {from}", e.display()),
                to.to_str().unwrap(),
            ],
        );
    }
    std::fs::remove_file(&e).unwrap();
    assert_eq!((disk.shape(&p), disk.shape(&q)), ("8S".into(), "8S".into()));
    let phys = |path: &Path| disk.map_by(path, 10).extents()[0].phys_range().unwrap();
    assert!(!phys(&p).overlaps(&phys(&q)));
    let items =
        |path: &Path| -> Vec<PhysRange> { disk.backing.items(&disk.open(path)).unwrap().unwrap() };
    assert_eq!(
        items(&p),
        items(&q),
        "the item tells what their bytes do not"
    );
    std::fs::remove_file(&q).unwrap();
    assert_eq!(disk.shape(&p), "8.");
}

/// Changes by another process, since this one's own are left out.
fn elsewhere(script: &str, path: &Path) {
    run("sh", ["-c", script, "sh", path.to_str().unwrap()]);
}

#[test]
fn changes_by_others_are_readable_when_they_have_returned() {
    let _alone = alone();
    for image in [Image::xfs(), Image::btrfs()].into_iter().flatten() {
        let disk = Disk::on(image.path());
        assert!(disk.backing.watches());
        let (a, b) = pair(&image);
        assert_eq!(disk.events(), [], "our own changes are not reported");
        let (of_a, of_b, root) = (disk.key(&a), disk.key(&b), disk.key(image.path()));
        elsewhere("echo more >> \"$1\"", &a);
        assert_eq!(disk.events(), [Event::Modified(of_a)]);
        elsewhere("chmod 600 \"$1\"", &a);
        assert_eq!(disk.events(), [Event::Attributes(of_a)]);
        elsewhere("cp --reflink=always \"$1\" \"$1.new\"", &a);
        let new = disk.key(&image.path().join("a.new"));
        let events = disk.events();
        assert!(events.contains(&Event::Modified(new)), "{events:?}");
        assert!(events.contains(&Event::Entry {
            directory: root,
            name: b"a.new".to_vec(),
            subvolume: false
        }));
        assert!(
            !events.contains(&Event::Modified(of_a)),
            "no event on a source"
        );
        elsewhere("mkdir \"$1.d\"", &a);
        assert_eq!(
            disk.events(),
            [Event::Entry {
                directory: root,
                name: b"a.d".to_vec(),
                subvolume: false
            }]
        );
        elsewhere("rm \"$1\"", &b);
        let events = disk.events();
        assert!(events.contains(&Event::Removed(of_b)), "{events:?}");
        // Pipes are written to as well; only regular files are reported.
        elsewhere(
            "mkfifo \"$1.p\"; cat \"$1.p\" >/dev/null & echo x > \"$1.p\"; wait",
            &a,
        );
        let events = disk.events();
        assert!(
            !events
                .iter()
                .any(|event| matches!(event, Event::Modified(_))),
            "{events:?}"
        );
        assert_eq!(disk.events(), []);
    }
}

#[test]
fn what_is_not_reported_as_a_change_is_reported_when_the_file_is_closed() {
    let _alone = alone();
    if !have("fio") {
        return;
    }
    for image in [Image::xfs(), Image::btrfs()].into_iter().flatten() {
        let disk = Disk::on(image.path());
        let (a, b) = pair(&image);
        let (of_a, of_b) = (disk.key(&a), disk.key(&b));
        for (what, script) in [
            (
                "a store through a mapping",
                "python3 -c 'import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 4096)
m[0] = m[0] ^ 255' \"$1\"",
            ),
            (
                "writes through libaio",
                "fio --name=x --filename=\"$1\" --rw=write --bs=16k --size=64k --ioengine=libaio \
                 --direct=1 --fallocate=none --overwrite=1 >/dev/null",
            ),
            (
                "deduplication into it",
                "cp --reflink=never \"$1\" \"$1.twin\"; xfs_io -c \"dedupe $1.twin 0 0 64k\" \"$1\"",
            ),
        ] {
            elsewhere(script, &a);
            let events = disk.events();
            assert!(events.contains(&Event::Closed(of_a)), "{what}: {events:?}");
            assert!(
                !events.contains(&Event::Modified(of_a)),
                "{what}: {events:?}"
            );
        }
        elsewhere("cat \"$1\" >/dev/null", &b);
        assert_eq!(disk.events(), [], "nobody cares who reads");
        elsewhere(": >> \"$1\"", &b);
        assert_eq!(
            disk.events(),
            [Event::Closed(of_b)],
            "opened for write, but not written"
        );
    }
}

#[test]
fn a_snapshot_is_noticed_and_its_removal_carried_out_on_request() {
    let _alone = alone();
    let Some(image) = Image::btrfs() else { return };
    let (sub, snapshot) = (image.path().join("sub"), image.path().join("snap"));
    run("btrfs", ["subvolume", "create", sub.to_str().unwrap()]);
    let file = sub.join("f");
    write_synced(&file, 1, 64 << 10);
    let disk = Disk::on(image.path());
    let root = disk.key(image.path());
    let key = disk.key(&file);
    assert_ne!(
        key.device, root.device,
        "a subvolume is a device of its own"
    );
    assert_eq!(
        disk.backing.address_space(key.device),
        disk.backing.address_space(root.device)
    );
    assert_eq!(disk.shape(&file), "16.");
    run(
        "btrfs",
        [
            "subvolume",
            "snapshot",
            sub.to_str().unwrap(),
            snapshot.to_str().unwrap(),
        ],
    );
    let made = Event::Entry {
        directory: root,
        name: b"snap".to_vec(),
        subvolume: true,
    };
    assert!(disk.events().contains(&made));
    assert_eq!(disk.shape(&file), "16S");
    let copy = disk.key(&snapshot.join("f"));
    assert_eq!(copy.ino, key.ino);
    assert_ne!(copy.device, key.device);
    run("btrfs", ["subvolume", "delete", snapshot.to_str().unwrap()]);
    let events = disk.events();
    assert!(events.contains(&made), "its removal too");
    let root_of_snapshot = FileKey { ino: 256, ..copy };
    assert!(
        events.iter().any(|event| matches!(
            event,
            Event::Removed(key) if (key.ino, key.device) == (root_of_snapshot.ino, copy.device)
        )),
        "{events:?}"
    );
    assert_eq!(
        disk.backing.flush_removals(key.device, &[]).unwrap(),
        Removals::Done
    );
    assert_eq!(disk.shape(&file), "16.");
    assert_eq!(disk.backing.liveness(copy), Liveness::Gone);
}

#[test]
fn a_removed_subvolume_counts_as_removed_only_when_the_cleaner_has_finished_with_it() {
    let _alone = alone();
    let Some(image) = Image::of(Kind::Btrfs).size_mib(2048).make() else {
        return;
    };
    let (sub, snapshot) = (image.path().join("sub"), image.path().join("snap"));
    run("btrfs", ["subvolume", "create", sub.to_str().unwrap()]);
    let watched = sub.join("watched");
    write_synced(&watched, 1, 64 << 10);
    for number in 0..4000 {
        std::fs::write(sub.join(number.to_string()), content(number, 2000)).unwrap();
    }
    let disk = Disk::on(image.path());
    run(
        "btrfs",
        [
            "subvolume",
            "snapshot",
            sub.to_str().unwrap(),
            snapshot.to_str().unwrap(),
        ],
    );
    // The trees part, so that dropping one takes the cleaner some time.
    for number in 0..4000 {
        write_at(&sub.join(number.to_string()), 0, b"other");
    }
    disk.backing.write_back_all(SOURCE).unwrap();
    assert_eq!(disk.shape(&watched), "16S");
    run("btrfs", ["subvolume", "delete", snapshot.to_str().unwrap()]);
    assert_eq!(
        disk.backing.flush_removals(SOURCE, &[]).unwrap(),
        Removals::Done
    );
    assert_eq!(disk.shape(&watched), "16.");
}

#[test]
fn a_removed_subvolume_with_an_open_file_is_under_way_until_it_is_closed() {
    let _alone = alone();
    let Some(image) = Image::btrfs() else { return };
    let (sub, snapshot) = (image.path().join("sub"), image.path().join("snap"));
    run("btrfs", ["subvolume", "create", sub.to_str().unwrap()]);
    let file = sub.join("f");
    write_synced(&file, 1, 64 << 10);
    run(
        "btrfs",
        [
            "subvolume",
            "snapshot",
            sub.to_str().unwrap(),
            snapshot.to_str().unwrap(),
        ],
    );
    let source = File::open(image.path()).unwrap();
    let table = Arc::new(DeviceTable::new(source.as_fd()).unwrap());
    let backing = DiskBacking::new(table).with_cleaner_wait(Duration::from_millis(100));
    let disk = Disk { backing };
    let flush = || disk.backing.flush_removals(SOURCE, &[]).unwrap();
    let held = File::open(snapshot.join("f")).unwrap();
    run("btrfs", ["subvolume", "delete", snapshot.to_str().unwrap()]);
    assert_eq!(flush(), Removals::UnderWay);
    let begun = Instant::now();
    assert_eq!(flush(), Removals::UnderWay);
    assert!(
        begun.elapsed() < Duration::from_millis(50),
        "waited for once"
    );
    assert_eq!(disk.shape(&file), "16S");
    drop(held);
    let end = Instant::now() + Duration::from_secs(20);
    while flush() == Removals::UnderWay {
        assert!(Instant::now() < end);
        // The cleaner comes by itself every half minute, or with the next commit.
        run(
            "btrfs",
            ["filesystem", "sync", image.path().to_str().unwrap()],
        );
    }
    assert_eq!(disk.shape(&file), "16.");
}

#[test]
fn a_mounted_subvolume_is_watched_through_the_top_level_one() {
    let _alone = alone();
    let Some(image) = Image::btrfs() else { return };
    let (sub, other) = (image.path().join("sub"), image.path().join("other"));
    for path in [&sub, &other] {
        run("btrfs", ["subvolume", "create", path.to_str().unwrap()]);
    }
    let point = image.beside("mounted");
    run(
        "mount",
        ["-o", "subvol=sub", image.device(), point.to_str().unwrap()],
    );
    let disk = Disk::on(&point);
    assert!(disk.backing.watches());
    write_synced(&point.join("f"), 1, 64 << 10);
    let key = disk.key(&point.join("f"));
    assert_eq!(disk.events(), []);
    elsewhere("echo more >> \"$1\"", &sub.join("f"));
    assert_eq!(disk.events(), [Event::Modified(key)]);
    // Another subvolume, never met: its files may share with ours.
    elsewhere("cp --reflink=always \"$1/f\" \"$1/../other/g\"", &sub);
    let events = disk.events();
    let copy = disk.key(&other.join("g"));
    assert!(events.contains(&Event::Modified(copy)), "{events:?}");
    assert_eq!(disk.shape(&point.join("f")), "17S");
    assert_eq!(
        disk.backing
            .stamp(&disk.backing.open(copy).unwrap())
            .unwrap()
            .links,
        1
    );
    drop(disk);
}

#[test]
fn inode_numbers_name_allocation_groups() {
    let _alone = alone();
    let Some(image) = Image::of(Kind::Xfs).size_mib(2048).groups(8).make() else {
        return;
    };
    let source = File::open(image.path()).unwrap();
    let geometry = sharelens::sys::xfs::geometry(source.as_fd()).unwrap();
    assert_eq!((geometry.block, geometry.groups), (4096, 8));
    assert!(geometry.reflink && geometry.rmap);
    let disk = Disk::on(image.path());
    let mut groups: Vec<u32> = (0..16)
        .map(|number| {
            // XFS puts new directories into groups in turn.
            let path = image.path().join(number.to_string());
            std::fs::create_dir(&path).unwrap();
            geometry.group_of(disk.key(&path).ino)
        })
        .collect();
    groups.sort_unstable();
    groups.dedup();
    assert_eq!(groups, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_filesystem_that_cannot_share_says_so() {
    let _alone = alone();
    let Some(image) = Image::ext4() else { return };
    let disk = Disk::on(image.path());
    let path = image.path().join("f");
    write_synced(&path, 1, 64 << 10);
    assert_eq!(disk.backing.sharing_unit(SOURCE), SharingUnit::None);
    assert_eq!(disk.shape(&path), "16.");
    assert_eq!(disk.backing.items(&disk.open(&path)).unwrap(), None);
    assert_eq!(
        disk.backing.flush_removals(SOURCE, &[]).unwrap(),
        Removals::Done
    );
    let directory = disk.open(&path);
    let mut none = Vec::new();
    assert!(
        disk.backing
            .map(&directory, FileOffset(1 << 40), 10, &mut none)
            .unwrap()
    );
    assert!(none.is_empty());
}
