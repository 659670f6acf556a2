//! Databases at work in the mount: SQLite with a write-ahead log and several writers, PostgreSQL
//! as its own user.

use crate::common::venue::Venue;
use crate::common::{calls, have, need, output, run};
use crate::everywhere;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

everywhere!(
    sqlite_with_a_write_ahead_log,
    sqlite_with_a_rollback_journal,
    postgresql_makes_a_cluster_and_runs_pgbench,
);

fn sqlite(database: &Path, script: &str) -> String {
    run(
        "sqlite3",
        [
            "-bail",
            "-cmd",
            ".timeout 60000",
            database.to_str().unwrap(),
            script,
        ],
    )
}

/// Four writers and two readers at once; afterwards every row is there and the file is sound.
fn sqlite_at_work(venue: &Venue, journal: &str) {
    if !have("sqlite3") {
        return;
    }
    let database = venue.at("test.db");
    let made = sqlite(
        &database,
        &format!("PRAGMA journal_mode={journal}; CREATE TABLE t(writer INT, n INT, text TEXT);"),
    );
    assert_eq!(made.trim(), journal);
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let mut script = String::from(".timeout 60000\nPRAGMA synchronous=NORMAL;\n");
            for number in 0..60 {
                script.push_str(&format!(
                    "BEGIN IMMEDIATE; INSERT INTO t VALUES({writer},{number},hex(randomblob(200)));\
                     INSERT INTO t SELECT {writer},{number},count(*) FROM t; COMMIT;\n"
                ));
            }
            let file = venue.at(format!("script-{writer}"));
            fs::write(&file, script).unwrap();
            Command::new("sqlite3")
                .args(["-bail", database.to_str().unwrap()])
                .stdin(fs::File::open(&file).unwrap())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for _ in 0..15 {
        let rows = sqlite(&database, "SELECT count(*) % 2 FROM t");
        assert_eq!(rows.trim(), "0", "half a transaction was seen");
    }
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let ask = |path: &Path| {
        sqlite(
            path,
            "PRAGMA integrity_check; SELECT count(*) FROM t; SELECT count(DISTINCT writer*1000+n) FROM t;",
        )
    };
    assert_eq!(ask(&database), "ok\n480\n240\n");
    assert_eq!(ask(&venue.backing().join("test.db")), "ok\n480\n240\n");
}

fn sqlite_with_a_write_ahead_log(venue: &mut Venue) {
    sqlite_at_work(venue, "wal");
}

fn sqlite_with_a_rollback_journal(venue: &mut Venue) {
    sqlite_at_work(venue, "delete");
}

/// Where Debian keeps PostgreSQL's programs, the newest version.
fn postgresql() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists() && bin.join("pgbench").exists())
        .collect();
    found.sort();
    let newest = found.pop();
    need(newest.is_some(), "postgresql").then_some(newest)?
}

fn postgresql_makes_a_cluster_and_runs_pgbench(venue: &mut Venue) {
    let Some(bin) = postgresql() else { return };
    let data = venue.at("data");
    let sockets = venue.image().beside("sockets");
    fs::create_dir(&data).unwrap();
    run("chown", ["postgres:postgres".as_ref(), data.as_os_str()]);
    run("chown", ["postgres:postgres".as_ref(), sockets.as_os_str()]);
    calls::chmod(&data, 0o700).unwrap();
    let as_postgres = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=postgres", "--regid=postgres", "--init-groups"])
            .arg(bin.join(program))
            .args(arguments)
            .env("LC_ALL", "C")
            .current_dir("/");
        let said = output(&mut command);
        assert!(said.ok(), "{program}: {}{}", said.stdout, said.stderr);
        said.stdout
    };
    let (data_text, socket) = (data.to_str().unwrap(), sockets.to_str().unwrap());
    as_postgres(
        "initdb",
        &["-D", data_text, "-A", "trust", "--data-checksums"],
    );
    let options = format!(
        "-k {socket} -c listen_addresses= -c shared_buffers=16MB -c max_wal_size=64MB \
         -c dynamic_shared_memory_type=posix -c log_min_messages=warning"
    );
    let log = sockets.join("log");
    let start = || {
        as_postgres(
            "pg_ctl",
            &[
                "-D",
                data_text,
                "-w",
                "-t",
                "60",
                "-l",
                log.to_str().unwrap(),
                "-o",
                &options,
                "start",
            ],
        )
    };
    let stop = |how: &str| as_postgres("pg_ctl", &["-D", data_text, "-w", "-m", how, "stop"]);
    let query = |sql: &str| as_postgres("psql", &["-h", socket, "-d", "postgres", "-Atc", sql]);
    start();
    as_postgres(
        "pgbench",
        &["-h", socket, "-i", "-q", "-s", "1", "postgres"],
    );
    let said = as_postgres(
        "pgbench",
        &["-h", socket, "-c", "4", "-j", "2", "-t", "50", "postgres"],
    );
    assert!(
        said.contains("number of transactions actually processed: 200/200"),
        "{said}"
    );
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history),
        (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches),
        (SELECT count(*) FROM pgbench_history)";
    assert_eq!(query(sums).trim(), "t|t|200");
    // Stopped without a checkpoint, so that the next start replays the log.
    stop("immediate");
    start();
    assert_eq!(query(sums).trim(), "t|t|200");
    query("CHECKPOINT");
    stop("fast");
    as_postgres("pg_checksums", &["-D", data_text, "--check"]);
    let said = fs::read_to_string(&log).unwrap();
    assert!(
        !said.contains("PANIC") && !said.contains("could not"),
        "{said}"
    );
}
