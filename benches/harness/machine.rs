//! The machine, in one line, without which no figure means anything.

use std::fs;
use std::process::Command;

/// Processor, number of processors, memory, kernel, and the load when asked.
pub(crate) fn machine_line() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
        .map_or_else(String::new, |kib| {
            format!(", {} GiB of memory", kib.div_ceil(1 << 20))
        });
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "{processors} x {model}{memory}, Linux {}, load before {}; {}",
        kernel.trim(),
        load.split(' ').next().unwrap_or_default(),
        versions().join(", ")
    )
}

/// First lines of `--version` of the programs that take part.
fn versions() -> Vec<String> {
    [
        ("mkfs.xfs", "-V"),
        ("mkfs.btrfs", "--version"),
        ("bindfs", "--version"),
        ("fio", "--version"),
        ("git", "--version"),
        ("cargo", "--version"),
    ]
    .iter()
    .filter_map(|(program, argument)| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.lines().next()?.trim().to_owned())
    })
    .collect()
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
