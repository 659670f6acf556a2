//! Data: mappings, descriptors, appends and direct I/O see the same bytes, sizes and times.

use crate::common::calls::{self, Mapping, outcome};
use crate::common::files::content;
use crate::common::venue::{Io, Venue};
use crate::common::{raw, run};
use crate::everywhere;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

everywhere!(
    size_and_times_after_a_mapped_store,
    a_mapping_and_a_descriptor_see_the_same_bytes,
    a_mapping_outlives_its_descriptor_and_its_name,
    a_truncated_mapping_and_a_grown_one,
    appends_of_many_writers_are_all_there,
    writers_and_readers_of_one_file_see_one_size,
    direct_io_and_cached_io_agree,
    reopening_with_other_flags_works_at_once,
    times_follow_what_is_done,
);

fn read_write(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// Lets the clock of the filesystem move on.
fn tick() {
    std::thread::sleep(Duration::from_millis(12));
}

fn size_and_times_after_a_mapped_store(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, vec![0; 100_000]).unwrap();
    let file = read_write(&path);
    file.sync_all().unwrap();
    let mut mapping = Mapping::new(&file, 100_000).unwrap();
    for round in 0..5 {
        let before = fs::metadata(&path).unwrap();
        tick();
        mapping.store(round * 4096, b"stored");
        if venue.io() == Io::Cached {
            mapping.sync().unwrap();
        }
        let after = fs::metadata(&path).unwrap();
        let time = |meta: &fs::Metadata| (meta.mtime(), meta.mtime_nsec());
        assert!(time(&after) > time(&before), "round {round}");
        assert_eq!(after.len(), 100_000);
        let below = fs::metadata(venue.backing().join("f")).unwrap();
        assert_eq!(time(&after), time(&below));
        // Clean pages, so that the next store is seen by the filesystem again.
        file.sync_all().unwrap();
    }
}

fn a_mapping_and_a_descriptor_see_the_same_bytes(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, content(1, 64 << 10)).unwrap();
    let file = read_write(&path);
    let mut mapping = Mapping::new(&file, 64 << 10).unwrap();
    let view = Mapping::read_only(&File::open(&path).unwrap(), 64 << 10).unwrap();
    mapping.store(10_000, b"through the mapping");
    let mut back = [0; 19];
    file.read_exact_at(&mut back, 10_000).unwrap();
    assert_eq!(&back, b"through the mapping");
    assert_eq!(view.load(10_000, 19), b"through the mapping");
    file.write_all_at(b"through the descriptor", 20_000)
        .unwrap();
    assert_eq!(mapping.load(20_000, 22), b"through the descriptor");
    assert_eq!(view.load(20_000, 22), b"through the descriptor");
    mapping.sync().unwrap();
    let below = fs::read(venue.backing().join("f")).unwrap();
    assert_eq!(&below[10_000..10_019], b"through the mapping");
}

fn a_mapping_outlives_its_descriptor_and_its_name(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, vec![1; 50_000]).unwrap();
    let file = read_write(&path);
    let mut mapping = Mapping::new(&file, 50_000).unwrap();
    drop(file);
    mapping.store(0, b"after close");
    mapping.sync().unwrap();
    assert_eq!(&fs::read(&path).unwrap()[..11], b"after close");
    fs::rename(&path, venue.at("g")).unwrap();
    mapping.store(0, b"after move!");
    mapping.sync().unwrap();
    assert_eq!(&fs::read(venue.at("g")).unwrap()[..11], b"after move!");
    fs::remove_file(venue.at("g")).unwrap();
    mapping.store(40_000, b"after removal");
    mapping.sync().unwrap();
    assert_eq!(mapping.load(40_000, 13), b"after removal");
    assert_eq!(mapping.load(0, 11), b"after move!");
}

fn a_truncated_mapping_and_a_grown_one(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, vec![7; 20_000]).unwrap();
    let file = read_write(&path);
    let mapping = Mapping::new(&file, 20_000).unwrap();
    file.set_len(10_000).unwrap();
    // The rest of the last page reads as zeroes, and does so after growing again.
    assert_eq!(mapping.load(9_990, 20), [vec![7; 10], vec![0; 10]].concat());
    file.set_len(20_000).unwrap();
    assert_eq!(mapping.load(9_990, 20), [vec![7; 10], vec![0; 10]].concat());
    assert_eq!(mapping.load(19_000, 100), vec![0; 100]);
    let mut expected = vec![7; 10_000];
    expected.resize(20_000, 0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    // Truncated by path while mapped and open.
    nix::unistd::truncate(&path, 5_000).unwrap();
    assert_eq!(mapping.load(4_990, 20), [vec![7; 10], vec![0; 10]].concat());
    assert_eq!(file.metadata().unwrap().len(), 5_000);
}

fn appends_of_many_writers_are_all_there(venue: &mut Venue) {
    let path = venue.at("log");
    File::create(&path).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                for line in 0..300 {
                    let text = format!("{writer}-{line:04}-{}\n", "x".repeat(line % 60));
                    assert_eq!(file.write(text.as_bytes()).unwrap(), text.len());
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut next = [0; 4];
    for line in text.lines() {
        let mut parts = line.split('-');
        let writer: usize = parts.next().unwrap().parse().unwrap();
        let number: usize = parts.next().unwrap().parse().unwrap();
        assert_eq!(parts.next().unwrap().len(), number % 60);
        assert_eq!(
            number, next[writer],
            "a line of writer {writer} is lost or moved"
        );
        next[writer] += 1;
    }
    assert_eq!(next, [300; 4]);
}

fn writers_and_readers_of_one_file_see_one_size(venue: &mut Venue) {
    let path = venue.at("f");
    let writer = File::create(&path).unwrap();
    let reader = File::open(&path).unwrap();
    let mut size = 0;
    for round in 0..200 {
        let chunk = content(round, 1000 + round as usize * 7);
        writer.write_all_at(&chunk, size).unwrap();
        size += chunk.len() as u64;
        assert_eq!(fs::metadata(&path).unwrap().len(), size);
        assert_eq!(reader.metadata().unwrap().len(), size);
        let mut tail = vec![0; chunk.len()];
        reader
            .read_exact_at(&mut tail, size - chunk.len() as u64)
            .unwrap();
        assert_eq!(tail, chunk);
        if round % 20 == 19 {
            size /= 2;
            writer.set_len(size).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), size);
            assert_eq!(reader.read_at(&mut [0; 10], size).unwrap(), 0);
        }
    }
    assert_eq!(fs::metadata(venue.backing().join("f")).unwrap().len(), size);
}

/// Memory at an address that O_DIRECT takes.
#[repr(align(4096))]
struct Aligned([u8; 8192]);

fn direct_io_and_cached_io_agree(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, content(1, 64 << 10)).unwrap();
    let cached = read_write(&path);
    let direct = calls::open(&path, libc::O_RDWR | libc::O_DIRECT).unwrap();
    let mut buffer = Box::new(Aligned([0; 8192]));
    direct.read_exact_at(&mut buffer.0, 4096).unwrap();
    assert_eq!(buffer.0[..], content(1, 64 << 10)[4096..12288]);
    // Written directly, read from the cache, and the other way round.
    buffer.0.fill(0xd1);
    direct.write_all_at(&buffer.0, 8192).unwrap();
    let mut back = vec![0; 8192];
    cached.read_exact_at(&mut back, 8192).unwrap();
    assert_eq!(back, vec![0xd1; 8192]);
    cached.write_all_at(&[0xca; 8192], 16384).unwrap();
    direct.read_exact_at(&mut buffer.0, 16384).unwrap();
    assert_eq!(buffer.0[..], [0xca; 8192]);
    // A direct append is seen in the size.
    direct.write_all_at(&buffer.0, 64 << 10).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), (64 << 10) + 8192);
    // Not aligned: as the filesystem below answers, or right.
    let native = venue.native().join("f");
    fs::write(&native, content(1, 64 << 10)).unwrap();
    let below = calls::open(&native, libc::O_RDWR | libc::O_DIRECT).unwrap();
    let unaligned = outcome(direct.read_at(&mut buffer.0[..100], 1));
    assert!(unaligned == outcome(below.read_at(&mut buffer.0[..100], 1)) || unaligned == Ok(()));
}

fn reopening_with_other_flags_works_at_once(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "start").unwrap();
    let mut held = Vec::new();
    for round in 0..60 {
        let flags = match round % 6 {
            0 => libc::O_RDONLY,
            1 => libc::O_RDWR,
            2 => libc::O_WRONLY | libc::O_APPEND,
            3 => libc::O_RDWR | libc::O_DIRECT,
            4 => libc::O_RDWR | libc::O_SYNC,
            _ => libc::O_RDONLY | libc::O_NOATIME,
        };
        let open = calls::open(&path, flags).unwrap();
        if round % 6 == 2 {
            (&open).write_all(b"+").unwrap();
        }
        held.push(open);
        if round % 4 == 3 {
            held.remove(0);
        }
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        format!("start{}", "+".repeat(10))
    );
    drop(held);
    calls::open(&path, libc::O_WRONLY | libc::O_TRUNC).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

fn times_follow_what_is_done(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, vec![1; 10_000]).unwrap();
    let file = read_write(&path);
    let other = venue.at("other");
    let open = File::create(venue.at("source")).unwrap();
    (&open).write_all(&[2; 4096]).unwrap();
    let source = File::open(venue.at("source")).unwrap();
    type Step<'a> = (&'a str, bool, Box<dyn Fn() + 'a>);
    let steps: Vec<Step> = vec![
        (
            "write",
            true,
            Box::new(|| file.write_all_at(b"x", 0).unwrap()),
        ),
        ("truncate", true, Box::new(|| file.set_len(9000).unwrap())),
        (
            "chmod",
            false,
            Box::new(|| calls::chmod(&path, 0o600).unwrap()),
        ),
        (
            "chown",
            false,
            Box::new(|| calls::chown(&path, Some(1), None).unwrap()),
        ),
        (
            "link",
            false,
            Box::new(|| fs::hard_link(&path, &other).unwrap()),
        ),
        (
            "unlink",
            false,
            Box::new(|| fs::remove_file(&other).unwrap()),
        ),
        (
            "setxattr",
            false,
            Box::new(|| raw::setxattr(&path, "user.a", b"1").unwrap()),
        ),
        (
            "removexattr",
            false,
            Box::new(|| raw::removexattr(&path, "user.a").unwrap()),
        ),
        (
            "punch",
            true,
            Box::new(|| {
                let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                calls::fallocate(&file, punch, 0, 4096).unwrap();
            }),
        ),
        (
            "copy_file_range",
            true,
            Box::new(|| assert_eq!(raw::copy_range(&source, 0, &file, 0, 4096).unwrap(), 4096)),
        ),
    ];
    let times = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        (
            (meta.mtime(), meta.mtime_nsec()),
            (meta.ctime(), meta.ctime_nsec()),
        )
    };
    for (name, modifies, step) in &steps {
        let before = times(&path);
        tick();
        step();
        let after = times(&path);
        assert!(after.1 > before.1, "{name} leaves ctime as it was");
        assert_eq!(after.0 > before.0, *modifies, "mtime after {name}");
        assert_eq!(after, times(&venue.backing().join("f")), "{name}");
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    assert!((times(&path).0.0 - i64::try_from(now.as_secs()).unwrap()).abs() < 5);
    run(
        "touch",
        ["-d", "2001-02-03 04:05:06 UTC", path.to_str().unwrap()],
    );
    assert_eq!(times(&path).0, (981_173_106, 0));
}
