//! The paths of the files that share with one, page by page.
//!
//! The tree knows by which directories a peer is reached, its name is read from the disk. A page
//! goes on after a path, so that what stands there all the time is told once, whatever comes and
//! goes meanwhile.
//!
//! Names of other files are for root and for whoever owns the file asked about; of these, others see
//! only what is theirs, in directories that they may enter. The rest is counted.

use super::Passthrough;
use super::error::{Doing, Error, Result};
use super::types::{Caller, NodeId};
use super::virtual_xattr::{ABSENT, refusal};
use super::walk::DiskDirectory;
use crate::sharing::FileKey;
use crate::sharing::peers::Peer;
use crate::sharing::tree::Way;
use crate::sharing::walk::{Identity, Kind, Name, Walk};
use crate::sys::at;
use crate::sys::peers::{HEADER, LONGEST, PAGE};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Entries read at a time.
const NAMES: usize = 4096;

/// Readings before what was renamed all the time is left out.
const READINGS: usize = 4;

/// How long paths are kept for the pages that follow the first.
const KEPT: Duration = Duration::from_secs(30);

/// Bytes of paths that are kept at most; more are found anew for every page.
const MOST_KEPT: usize = 16 << 20;

/// All paths that one caller may see.
#[derive(Debug, Default)]
pub(super) struct Paths {
    sorted: BTreeSet<Vec<u8>>,
    /// Peers of which the caller sees no path.
    hidden: u64,
}

/// The paths of which pages are being read.
#[derive(Debug)]
pub(super) struct KeptPaths {
    of: (FileKey, u32),
    since: Instant,
    paths: Arc<Paths>,
}

/// A name on the way to a peer.
struct Step {
    name: CString,
    uid: u32,
    mode: u32,
}

/// The names of what is on the ways, by the directory that holds it.
type Steps = HashMap<(FileKey, FileKey), Vec<Step>>;

impl Passthrough {
    /// One page of the paths, relative to the root of the mount, of the files that share with this
    /// one, as the ioctl gives it. May take as long as the engine's `wait`.
    ///
    /// # Errors
    /// `ENODATA` while not everything below the root was read, `EPERM` for others than root and the
    /// owner, `EINVAL` for what is no regular file; else as the attribute `peers` has.
    pub fn peers_page(&self, caller: Caller, node: NodeId, input: &[u8]) -> Result<Vec<u8>> {
        const DOING: &str = "list who shares with a file";
        let after = crate::sys::peers::position(input).ok_or(Error::new(libc::EINVAL, DOING))?;
        let known = self.inodes.nodes.get(node)?;
        if known.directory {
            return Err(Error::new(libc::EINVAL, DOING));
        }
        let fd = self.inodes.fd_of(node, &known)?;
        let status = at::status(std::os::fd::AsFd::as_fd(&fd), c"").doing(DOING)?;
        drop(fd);
        if !caller.is_root() && caller.uid != status.uid {
            return Err(Error::new(libc::EPERM, DOING));
        }
        let of = (known.key, caller.uid);
        let kept = self.kept_paths(of).filter(|_| !after.is_empty());
        let paths = match kept {
            Some(paths) => paths,
            None => Arc::new(self.peer_paths(caller, known.key)?),
        };
        let mut text = Vec::new();
        let mut last = true;
        let rest = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        for path in paths.sorted.range::<[u8], _>(rest) {
            if text.len() + path.len() + 1 > PAGE - HEADER {
                last = false;
                break;
            }
            text.extend_from_slice(path);
            text.push(0);
        }
        self.keep_paths(of, &paths, last);
        let mut page = Vec::with_capacity(HEADER + text.len());
        page.extend_from_slice(&paths.hidden.to_ne_bytes());
        page.extend_from_slice(&(text.len() as u32).to_ne_bytes());
        page.extend_from_slice(&u32::from(last).to_ne_bytes());
        page.extend_from_slice(&text);
        Ok(page)
    }

    fn kept_paths(&self, of: (FileKey, u32)) -> Option<Arc<Paths>> {
        let kept = self.peer_paths.lock();
        kept.as_ref()
            .filter(|kept| kept.of == of && kept.since.elapsed() < KEPT)
            .map(|kept| Arc::clone(&kept.paths))
    }

    /// Keeps the paths for the next page, if there is one.
    fn keep_paths(&self, of: (FileKey, u32), paths: &Arc<Paths>, last: bool) {
        let mut kept = self.peer_paths.lock();
        let ours = kept.as_ref().is_some_and(|kept| kept.of == of);
        let bytes: usize = paths.sorted.iter().map(Vec::len).sum();
        if !last && bytes <= MOST_KEPT {
            let since = Instant::now();
            let paths = Arc::clone(paths);
            *kept = Some(KeptPaths { of, since, paths });
        } else if ours {
            *kept = None;
        }
    }

    /// The paths of all peers.
    fn peer_paths(&self, caller: Caller, file: FileKey) -> Result<Paths> {
        let root = self.inodes.key(NodeId::ROOT)?;
        for reading in 1.. {
            let found = self.directories.peers_with_ways(root, file);
            let peers = found.map_err(refusal)?.ok_or(ABSENT)?;
            let steps = self.steps_to(&peers)?;
            let all_found = peers.iter().all(|peer| {
                peer.ways
                    .iter()
                    .all(|way| pairs(way, peer.file).all(|pair| steps.contains_key(&pair)))
            });
            // Otherwise something was renamed or removed since the tree was asked.
            if all_found || reading >= READINGS {
                return Ok(shown(caller, &peers, &steps));
            }
        }
        Err(ABSENT)
    }

    /// The names on all ways.
    fn steps_to(&self, peers: &[Peer]) -> Result<Steps> {
        let mut wanted: HashMap<FileKey, HashSet<FileKey>> = HashMap::new();
        for peer in peers {
            for (directory, child) in peer.ways.iter().flat_map(|way| pairs(way, peer.file)) {
                wanted.entry(directory).or_default().insert(child);
            }
        }
        let mut steps = Steps::new();
        for (directory, children) in wanted {
            match self.read_steps(directory, &children, &mut steps) {
                Err(error)
                    if !matches!(
                        error.raw_os_error(),
                        Some(libc::ESTALE | libc::ENOENT | libc::EACCES)
                    ) =>
                {
                    return Err(error).doing("read the names of files that share");
                }
                _ => {}
            }
        }
        Ok(steps)
    }

    /// The names of some children of a directory.
    fn read_steps(
        &self,
        directory: FileKey,
        children: &HashSet<FileKey>,
        steps: &mut Steps,
    ) -> io::Result<()> {
        let backing = self.engine.backing();
        let mut opened = backing.open_directory(directory)?;
        let numbers: HashSet<u64> = children.iter().map(|child| child.ino).collect();
        // The number in the entry of a subvolume is not that of its root.
        let elsewhere = children
            .iter()
            .any(|child| child.device != directory.device);
        let mut more = true;
        while more {
            let mut names = Vec::new();
            more = backing.read_directory(&mut opened, NAMES, &mut names)?;
            names.retain(|name| {
                name.kind != Kind::Other
                    && (numbers.contains(&name.ino) || elsewhere && name.kind != Kind::File)
            });
            for name in names {
                if let Some((child, step)) = self.step(&opened, name)?
                    && children.contains(&child)
                {
                    steps.entry((directory, child)).or_default().push(step);
                }
            }
        }
        Ok(())
    }

    /// What a name stands for now; `None` for what nothing can share with.
    fn step(&self, directory: &DiskDirectory, name: Name) -> io::Result<Option<(FileKey, Step)>> {
        let looked = self.engine.backing().identify(directory, &name);
        let child = match looked {
            Ok(Identity::File { key, .. } | Identity::Directory(key)) => key,
            Ok(Identity::Other | Identity::Elsewhere) => return Ok(None),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Ok(status) = directory.status(&name.text) else {
            return Ok(None);
        };
        let step = Step {
            name: name.text,
            uid: status.uid,
            mode: status.mode,
        };
        Ok(Some((child, step)))
    }
}

/// Each directory on a way with what comes next.
fn pairs(way: &Way, file: FileKey) -> impl Iterator<Item = (FileKey, FileKey)> {
    let below = way.iter().skip(1).copied().chain([file]);
    way.iter().copied().zip(below)
}

/// What the caller may see.
fn shown(caller: Caller, peers: &[Peer], steps: &Steps) -> Paths {
    let mut paths = Paths::default();
    for peer in peers {
        let mut sees_any = false;
        let mut exists = false;
        for way in &peer.ways {
            for (path, visible) in paths_on(caller, way, peer.file, steps) {
                exists = true;
                if visible && path.len() <= LONGEST {
                    sees_any = true;
                    paths.sorted.insert(path);
                }
            }
        }
        paths.hidden += u64::from(exists && !sees_any);
    }
    paths
}

/// Every path on a way (names of one file in one directory may be several), and whether the caller
/// may see it.
fn paths_on(caller: Caller, way: &Way, file: FileKey, steps: &Steps) -> Vec<(Vec<u8>, bool)> {
    let mut paths = vec![(Vec::new(), true)];
    for pair in pairs(way, file) {
        let names = steps.get(&pair).map(Vec::as_slice).unwrap_or_default();
        let enters = |step: &Step| {
            caller.is_root()
                || step.uid == caller.uid
                || pair.1 != file && step.mode & libc::S_IXOTH != 0
        };
        paths = paths
            .iter()
            .flat_map(|(path, visible)| {
                names.iter().map(move |step| {
                    let mut path: Vec<u8> = path.clone();
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(step.name.to_bytes());
                    (path, *visible && enters(step))
                })
            })
            .collect();
    }
    paths
}
