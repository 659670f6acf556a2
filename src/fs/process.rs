//! What the kernel does not pass on about a caller, from /proc.

use super::types::Caller;

/// The supplementary groups of the caller; none where its process cannot be seen (another pid
/// namespace, or it has ended).
pub(crate) fn groups(caller: Caller) -> Vec<u32> {
    if caller.pid == 0 {
        return Vec::new();
    }
    std::fs::read_to_string(format!("/proc/{}/status", caller.pid))
        .map(|status| parse(&status))
        .unwrap_or_default()
}

fn parse(status: &str) -> Vec<u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .map(|groups| {
            groups
                .split_whitespace()
                .filter_map(|group| group.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn groups_are_read() {
        assert_eq!(
            super::parse("Name:\tx\nGroups:\t4 24 1000 \nX:\t1\n"),
            [4, 24, 1000]
        );
        assert!(super::parse("Name:\tx\nGroups:\t\n").is_empty());
    }
}
