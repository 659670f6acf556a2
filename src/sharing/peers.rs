//! Who shares with a file: how many, and where they stand.
//!
//! A peer of a file is another one that holds any of its shared blocks; where sharing is a
//! property of extent items (btrfs), any part of an item behind its shared extents, whichever.
//!
//! Invariants:
//! - a file's numbers and the number of its peers come from one map of it: if the file has changed
//!   when its peers have been found, everything is done again;
//! - what is unsettled below the top is looked at first, apart from files that cannot be peers: so a
//!   question writes back what changed since the last one, not what is being written elsewhere.

use super::backing::SharingUnit;
use super::cover::widened;
use super::directories::{Directories, RELIST};
use super::distinct::{SharedPart, SharedParts};
use super::engine::AskError;
use super::key::FileKey;
use super::sync::MutexGuard;
use super::tree::{Tree, Way, Work};
use super::walk::Walk;
use crate::extent::{ExtentFlags, ExtentMap, PhysRange, ShareSummary};
use hashbrown::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maps of a file that changes all the time before the asker is sent away.
const READINGS: usize = 16;

/// Files and directories that are looked at for a question about a file's own numbers, which is
/// answered without its peers where more is unsettled.
const FEW: usize = 64;

/// How long such a question waits for others' numbers.
const BRIEFLY: Duration = Duration::from_secs(1);

/// Parts of files that are remembered together with the numbers of their peers.
const REMEMBERED: usize = 1 << 18;

/// Another file that shares with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Which.
    pub file: FileKey,
    /// How each directory is reached that holds names of it.
    pub ways: Vec<Way>,
}

/// The numbers of peers found last, as long as nothing changes.
#[derive(Default)]
pub(super) struct PeerCounts {
    known: HashMap<FileKey, Known>,
    parts: usize,
}

#[derive(Clone)]
struct Known {
    top: FileKey,
    sought: Arc<Sought>,
    numbers: ShareSummary,
    /// [`Tree::sharing`] at that time.
    sharing: u64,
    peers: u64,
}

/// What other files must hold to share with a file.
struct Sought {
    /// What the file itself shares.
    own: SharedParts,
    /// Whoever holds some of this is a peer.
    surely: SharedParts,
    /// Nobody else is one; `None` when that is the same.
    at_most: Option<SharedParts>,
}

impl Sought {
    /// What every peer holds some of.
    fn outer(&self) -> &SharedParts {
        self.at_most.as_ref().unwrap_or(&self.surely)
    }

    fn parts(&self) -> usize {
        1 + self.own.as_slice().len() + self.surely.as_slice().len() + self.outer().as_slice().len()
    }
}

impl PeerCounts {
    fn remember(&mut self, file: FileKey, known: Known) {
        self.parts += known.sought.parts();
        if let Some(before) = self.known.insert(file, known) {
            self.parts -= before.sought.parts();
        }
        if self.parts > REMEMBERED {
            *self = Self::default();
        }
    }
}

/// What was found of a file without reading its map.
enum Remembered {
    /// The number of its peers is this still.
    Known(ShareSummary, u64),
    /// Its map has to be read.
    Unknown,
    /// Too much would have to be looked at first.
    TooMuch,
}

impl<B: Walk> Directories<B> {
    /// The numbers of a file, and how many others below `top` share with it, if no slow work is
    /// needed for either. `None` in the answer while not everything below `top` was looked at.
    pub fn peek_with_peers(
        &self,
        top: FileKey,
        file: FileKey,
    ) -> Option<(ShareSummary, Option<u64>)> {
        let answer = self.engine.peek_answer(file)?;
        let numbers = answer.numbers;
        // Numbers of some age are told where that is allowed, without the work for their peers.
        if !answer.settled || !self.tree.lock().was_settled(top) {
            return Some((numbers, None));
        }
        if numbers.shared_extents == 0 {
            return Some((numbers, Some(0)));
        }
        self.take_in();
        let tree = self.tree.lock();
        let counts = self.peer_counts.lock();
        let known = counts.known.get(&file)?;
        let holds = tree.is_quiet(top)
            && tree.skipped(top) == 0
            && known.top == top
            && known.numbers == numbers
            && known.sharing == tree.sharing();
        holds.then_some((numbers, Some(known.peers)))
    }

    /// The same, whatever it takes for the numbers; without peers while not everything below `top`
    /// was looked at, or where very much has changed below since somebody asked.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn with_peers(
        &self,
        top: FileKey,
        file: FileKey,
    ) -> Result<(ShareSummary, Option<u64>), AskError> {
        if self.tree.lock().was_settled(top) {
            match self.count_peers(top, file, Some(FEW)) {
                Ok(Some((numbers, peers))) => return Ok((numbers, Some(peers))),
                // The file's own numbers are not known in time.
                Err(AskError::Again) => return Err(AskError::Again),
                // Whatever failed may have been about another file.
                Ok(None) | Err(_) => {}
            }
        }
        Ok((self.engine.summary(file)?, None))
    }

    /// How many other files below `top` share with a file; `None` while not everything below `top`
    /// was looked at.
    ///
    /// # Errors
    /// See [`AskError`]; `CannotSay` also where something below `top` may not be read, or it cannot
    /// be known which file holds which item.
    pub fn peers(&self, top: FileKey, file: FileKey) -> Result<Option<u64>, AskError> {
        let young = self.is_young(&self.tree.lock(), top);
        if young && let Some((_, Some(peers))) = self.peek_with_peers(top, file) {
            return Ok(Some(peers));
        }
        if !self.tree.lock().was_settled(top) {
            return Ok(None);
        }
        let found = self.count_peers(top, file, None)?;
        Ok(found.map(|(_, peers)| peers))
    }

    /// The other files below `top` that share with a file, and where they stand; `None` while not
    /// everything below `top` was looked at.
    ///
    /// # Errors
    /// As of [`Directories::peers`].
    pub fn peers_with_ways(
        &self,
        top: FileKey,
        file: FileKey,
    ) -> Result<Option<Vec<Peer>>, AskError> {
        if !self.tree.lock().was_settled(top) {
            return Ok(None);
        }
        let ways = |tree: &Tree, file| Peer {
            file,
            ways: tree.ways(top, file),
        };
        Ok(self
            .find_peers(top, file, None, &ways)?
            .map(|(_, peers)| peers))
    }

    /// The numbers of a file and how many peers it has; `None` when more than `few` files or
    /// directories would have to be looked at first.
    fn count_peers(
        &self,
        top: FileKey,
        file: FileKey,
        few: Option<usize>,
    ) -> Result<Option<(ShareSummary, u64)>, AskError> {
        match self.remembered(top, file, few)? {
            Remembered::Known(numbers, peers) => Ok(Some((numbers, peers))),
            Remembered::TooMuch => Ok(None),
            Remembered::Unknown => {
                let found = self.find_peers(top, file, few, &|_, _| ())?;
                Ok(found.map(|(numbers, peers)| (numbers, peers.len() as u64)))
            }
        }
    }

    /// Whether the number of peers found last is right still, when others have been looked at that
    /// may have changed.
    fn remembered(
        &self,
        top: FileKey,
        file: FileKey,
        few: Option<usize>,
    ) -> Result<Remembered, AskError> {
        let known = self.peer_counts.lock().known.get(&file).cloned();
        let Some(known) = known.filter(|known| known.top == top) else {
            return Ok(Remembered::Unknown);
        };
        let numbers = self.engine.summary(file)?;
        if numbers != known.numbers {
            return Ok(Remembered::Unknown);
        }
        let deadline = self.deadline(few);
        let Some(tree) = self.settle_around(top, file, &known.sought, few, deadline)? else {
            return Ok(Remembered::TooMuch);
        };
        let same = tree.skipped(top) == 0
            && tree.sharing() == known.sharing
            && tree.is_measured_as(file, numbers, &known.sought.own) == Some(true);
        Ok(if same {
            Remembered::Known(numbers, known.peers)
        } else {
            Remembered::Unknown
        })
    }

    /// When a question has to be answered that begins now.
    fn deadline(&self, few: Option<usize>) -> Instant {
        let wait = self.engine.limits.wait;
        Instant::now() + few.map_or(wait, |_| wait.min(BRIEFLY))
    }

    /// The numbers of a file and what `tell` says of each of its peers; `None` when more than `few`
    /// files or directories would have to be looked at first.
    fn find_peers<T>(
        &self,
        top: FileKey,
        file: FileKey,
        few: Option<usize>,
        tell: &dyn Fn(&Tree, FileKey) -> T,
    ) -> Result<Option<(ShareSummary, Vec<T>)>, AskError> {
        let deadline = self.deadline(few);
        for _ in 0..READINGS {
            let (answer, map) = self.engine.answer_with_map(file)?;
            let numbers = answer.numbers;
            if map.shared().next().is_none() {
                return Ok(Some((numbers, Vec::new())));
            }
            let sought = Arc::new(self.sought(file, &map)?);
            let Some(tree) = self.settle_around(top, file, &sought, few, deadline)? else {
                return Ok(None);
            };
            let measured = tree.is_measured_as(file, numbers, &sought.own);
            let surely = tree.meeting(top, file, &sought.surely);
            let at_most = sought
                .at_most
                .as_ref()
                .map_or(surely.len(), |parts| tree.meeting(top, file, parts).len());
            let all_read = tree.skipped(top) == 0;
            let sharing = tree.sharing();
            let peers = surely.iter().map(|&peer| tell(&tree, peer)).collect();
            drop(tree);
            let steady = match measured {
                Some(same) => same,
                // Without a name, or where nothing may be read: nobody keeps its numbers.
                None => self.engine.answer_with_map(file)?.1 == map,
            };
            if !steady {
                continue;
            }
            if at_most > surely.len() || !all_read {
                return Err(AskError::CannotSay);
            }
            let known = Known {
                top,
                sought,
                numbers,
                sharing,
                peers: surely.len() as u64,
            };
            self.peer_counts.lock().remember(file, known);
            return Ok(Some((numbers, peers)));
        }
        Err(AskError::Again)
    }

    /// Has whatever is unsettled below `top` looked at that may be a peer; then the tree, before
    /// anything else happens to it. `None` when that is more than `few`.
    fn settle_around(
        &self,
        top: FileKey,
        file: FileKey,
        sought: &Sought,
        few: Option<usize>,
        deadline: Instant,
    ) -> Result<Option<MutexGuard<'_, Tree>>, AskError> {
        self.take_in();
        // A question about the file's own numbers has nothing read again because of its age.
        let (asking, since) = match few {
            None => self.begin(top),
            Some(_) => self.begin_as_is(top),
        };
        let parts = sought.outer();
        for round in 0.. {
            let mut tree = self.tree.lock();
            let mut work = tree.collect(top, since, round < RELIST);
            if work == Work::default() {
                tree.drop_orphans();
            }
            work.files
                .retain(|&other| other == file || tree.may_meet(other, file, parts));
            if work.is_done() {
                asking.finished();
                return Ok(Some(tree));
            }
            drop(tree);
            let amount = work.files.len() + work.listings.len() + work.claimed;
            if few.is_some_and(|few| amount > few) {
                return Ok(None);
            }
            let expired = Instant::now() >= deadline || self.is_stopping();
            if !expired {
                match self.do_work(work, since, deadline) {
                    Err(AskError::Again) => {}
                    done => done?,
                }
                self.take_in();
            } else if few.is_some() {
                return Ok(None);
            } else {
                break;
            }
        }
        Err(AskError::Again)
    }

    fn sought(&self, file: FileKey, map: &ExtentMap) -> io::Result<Sought> {
        let own = SharedParts::of(map);
        let SharingUnit::Item { largest } = self.backing().sharing_unit(file.device) else {
            return Ok(Sought {
                surely: own.clone(),
                own,
                at_most: None,
            });
        };
        let opened = self.engine.open(file)?;
        let mut items = self.backing().items(&opened)?.unwrap_or_default();
        drop(opened);
        items.sort_unstable();
        let mut surely = Vec::new();
        let mut at_most = Vec::new();
        let mut all_found = true;
        for extent in map.shared() {
            let Some(range) = extent.phys_range() else {
                continue;
            };
            // The key of an encoded extent stands for its item.
            let encoded = extent.flags.contains(ExtentFlags::ENCODED);
            match item_of(&items, &range) {
                _ if encoded => {
                    surely.push(part(range, true));
                    at_most.push(part(range, true));
                }
                Some(item) => {
                    surely.push(part(item, false));
                    at_most.push(part(item, false));
                }
                None => {
                    all_found = false;
                    surely.push(part(range, false));
                    at_most.push(part(widened(range, largest), false));
                }
            }
        }
        Ok(Sought {
            own,
            surely: SharedParts::normalise(surely),
            at_most: (!all_found).then(|| SharedParts::normalise(at_most)),
        })
    }
}

/// The item that holds the range.
fn item_of(items: &[PhysRange], range: &PhysRange) -> Option<PhysRange> {
    let before = items.partition_point(|item| item.start <= range.start);
    let item = items.get(before.checked_sub(1)?)?;
    (range.end <= item.end).then_some(*item)
}

fn part(range: PhysRange, encoded: bool) -> SharedPart {
    SharedPart {
        encoded,
        start: range.start.0,
        length: range.len().0,
    }
}
