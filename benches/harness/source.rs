//! A real source tree of some thousands of files: the project's own dependencies as cargo has
//! unpacked them.

use super::command::Run;
use super::error::{Context, Result};
use super::settings::Settings;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tree as a tar archive, outside of the filesystem under test.
pub(crate) struct SourceTree {
    /// The archive.
    pub(crate) archive: PathBuf,
    /// Regular files in it.
    pub(crate) files: usize,
    /// Their bytes.
    pub(crate) bytes: u64,
}

impl SourceTree {
    /// Packs the dependencies named in `Cargo.lock`, in the order of their names, until there
    /// are enough files; or the tree that was given.
    pub(crate) fn pack(settings: &Settings) -> Result<Self> {
        let wanted = settings.size(6000, 300);
        let mut tree = Self {
            archive: settings.scratch("source.tar"),
            files: 0,
            bytes: 0,
        };
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&tree.archive);
        if let Some(given) = &settings.source_tree {
            tree.count(given)?;
            tar.arg("-C").arg(given).arg(".").timed()?;
            return Ok(tree);
        }
        for directory in unpacked_dependencies()? {
            if tree.files >= wanted {
                break;
            }
            tree.count(&directory)?;
            let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
                continue;
            };
            tar.arg("-C").arg(parent).arg(name);
        }
        if tree.files == 0 {
            return Err("cargo has unpacked no dependencies here: give --source-tree DIR".into());
        }
        tar.timed()?;
        Ok(tree)
    }

    fn count(&mut self, directory: &Path) -> Result<()> {
        for entry in fs::read_dir(directory).context(directory)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_dir() {
                self.count(&entry.path())?;
            } else if about.is_file() {
                self.files += 1;
                self.bytes += about.len();
            }
        }
        Ok(())
    }
}

/// The directories of the packages in `Cargo.lock` below cargo's registry.
fn unpacked_dependencies() -> Result<Vec<PathBuf>> {
    let home = std::env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    let sources = home.join("registry/src");
    let registries: Vec<_> = fs::read_dir(&sources)
        .context(&sources)?
        .collect::<std::io::Result<_>>()?;
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
    let text = fs::read_to_string(&lock).context(&lock)?;
    let mut found = Vec::new();
    let mut name = "";
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("name = ") {
            name = value.trim_matches('"');
        } else if let Some(version) = line.strip_prefix("version = ") {
            let package = format!("{name}-{}", version.trim_matches('"'));
            found.extend(
                registries
                    .iter()
                    .map(|registry| registry.path().join(&package))
                    .filter(|directory| directory.is_dir()),
            );
        }
    }
    Ok(found)
}
