//! Questions and what goes on beside them: a removed file that only the engine itself still holds is
//! gone for everybody else, and unrelated changes keep no question from ending.

use crate::histories::setting;
use crate::history::History;
use crate::world::World;
use sharelens::extent::Bytes;
use sharelens::sharing::{Change, Engine};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Question about a file, its removal, and a question about one that shared with it: the second
/// is asked while the first still reads the map of the removed file.
#[test]
fn a_question_about_a_removed_file_does_not_keep_its_sharing_alive() {
    let history = History::new(setting(), Engine::new);
    let engine = Arc::clone(&history.engine);
    let [removed, other] = {
        let world = engine.backing().look();
        [world.key(100), world.key(101)]
    };
    for file in [removed, other] {
        assert_ne!(engine.summary(file).unwrap().shared_bytes, Bytes(0));
    }

    engine.backing().stall(Some(removed.ino));
    let reading = Arc::clone(&engine);
    let first = thread::spawn(move || reading.map(removed));
    while engine.backing().stalled_calls() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let change = engine.begin(Change::Unname {
        file: removed,
        last: true,
    });
    engine.backing().call(|world| world.unlink(removed.ino));
    drop(change);

    let asking = Arc::clone(&engine);
    let second = thread::spawn(move || asking.summary(other).unwrap());
    thread::sleep(Duration::from_millis(50));
    engine.backing().stall(None);
    assert_eq!(second.join().unwrap().shared_bytes, Bytes(0));
    let _ = first.join().unwrap();
    assert_eq!(engine.summary(other).unwrap().shared_bytes, Bytes(0));
}

/// Files are cloned all the time, which have nothing to do with the one that is asked about.
#[test]
fn a_question_ends_while_unrelated_files_are_cloned() {
    let history = History::new(setting(), Engine::new);
    let engine = Arc::clone(&history.engine);
    let [asked, source] = {
        let world = engine.backing().look();
        [world.key(101), world.key(103)]
    };
    let answered = engine.backing().look().truth(asked.ino);
    let (cloner, calls) = (Arc::clone(&engine), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&calls);
    engine.backing().meanwhile(Some(Box::new(move |call| {
        counter.store(call, Ordering::SeqCst);
        let ino = cloner.backing().call(World::create);
        let clone = cloner.backing().look().key(ino);
        cloner.created(clone);
        let change = cloner.begin(Change::Copy {
            from: source,
            to: clone,
        });
        cloner
            .backing()
            .call(|world| world.clone_range(source.ino, ino, 0, 0, 4));
        drop(change);
    })));
    let answer = engine.summary(asked).unwrap();
    engine.backing().meanwhile(None);
    assert_eq!(answer, answered);
    let calls = calls.load(Ordering::SeqCst);
    assert!((3..300).contains(&calls), "{calls} calls to the disk");
}
