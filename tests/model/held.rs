//! A removed file that only the engine itself still holds is gone for everybody else.

use crate::histories::setting;
use crate::history::History;
use sharelens::extent::Bytes;
use sharelens::sharing::{Change, Engine};
use std::sync::Arc;
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
