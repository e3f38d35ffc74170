//! A stand-in for a vendor's service: the library of an example, and its folder, which is the server.
//!
//! The server keeps requests in files beside the library, and copies a bit at each poll from any process. So a copy outlives the
//! process that requested it, and nothing depends on time. Files in the folder control it:
//!
//! | file | effect |
//! |---|---|
//! | `hold` | nothing is copied |
//! | `half` | of each file the first half is copied, and no more |
//! | `fail` | after its first half a file fails with the number in here |
//! | `short` | the last byte of each file is left out, and the copy is said to be complete |
//! | `instance` | sources must lie below the folder in here |

use std::ffi::{c_void, CStr, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A stand-in, as a test sees it.
#[derive(Debug)]
pub struct Standin {
    folder: PathBuf,
    library: PathBuf,
    /// Removes the folder in the end, where it is its own.
    _own: Option<tempfile::TempDir>,
}

impl Standin {
    /// Builds the library of an example, and puts it into a folder of its own.
    ///
    /// # Panics
    /// It cannot be built.
    pub fn new(example: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        Self { _own: Some(folder), ..Self::within(example, &path) }
    }

    /// The same in a folder that is there, and stays.
    ///
    /// # Panics
    /// It cannot be built.
    pub fn within(example: &str, folder: &Path) -> Self {
        let library = folder.join(format!("lib{example}.so"));
        fs::copy(crate::built(example), &library).unwrap();
        Self { folder: folder.to_owned(), library, _own: None }
    }

    /// The library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Makes one of the files that say how it goes.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn set(&self, name: &str, value: &str) {
        fs::write(self.folder.join(name), value).unwrap();
    }

    /// Removes it.
    ///
    /// # Panics
    /// It is not there.
    pub fn unset(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).unwrap();
    }

    /// How many files it has begun to copy.
    ///
    /// # Panics
    /// It cannot be counted.
    pub fn begun(&self) -> usize {
        fs::read_to_string(self.folder.join("begun")).map_or(0, |text| text.lines().count())
    }
}

/// The server, as the library sees it; locked for as long as it is there.
pub struct Server {
    folder: PathBuf,
    _lock: File,
}

impl Server {
    /// That of the library which has a function at this address.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn of(function: usize) -> io::Result<Self> {
        // SAFETY: numbers and pointers, for which zero is a value.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: it looks at the address only, and writes to a place that outlives the call.
        if unsafe { libc::dladdr(function as *const c_void, &mut info) } == 0 || info.dli_fname.is_null() {
            return Err(io::ErrorKind::NotFound.into());
        }
        // SAFETY: `dladdr` gives a string that ends with a zero and lives as long as the library.
        let path = unsafe { CStr::from_ptr(info.dli_fname) };
        let folder =
            Path::new(OsStr::from_bytes(path.to_bytes())).parent().unwrap_or(Path::new("/")).to_owned();
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(Self { folder, _lock: lock })
    }

    /// One of the files that say how it goes.
    pub fn setting(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(name)).ok()
    }

    /// The path for this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("kept.{name}"))
    }

    /// Everything that is kept under names that begin so.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn all(&self, prefix: &str) -> io::Result<Vec<PathBuf>> {
        let begins = format!("kept.{prefix}");
        let paths = fs::read_dir(&self.folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        let named = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_bytes().starts_with(begins.as_bytes()))
        };
        Ok(paths.filter(named).collect())
    }

    /// Begins a copy: the destination is made, or emptied.
    ///
    /// # Errors
    /// The source is no file, or the destination cannot be written.
    pub fn begin(&self, from: &Path, to: &Path) -> io::Result<()> {
        if let Some(instance) = self.setting("instance") {
            if !from.starts_with(instance.trim()) {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
        }
        if !fs::metadata(from)?.is_file() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        OpenOptions::new().create(true).truncate(true).write(true).open(to)?;
        let mut begun = OpenOptions::new().create(true).append(true).open(self.folder.join("begun"))?;
        io::Write::write_all(&mut begun, b"1\n")
    }

    /// Copies a bit of a file; whether that was the rest.
    ///
    /// # Errors
    /// As the folder wants, or as the system says.
    pub fn step(&self, from: &Path, to: &Path) -> io::Result<bool> {
        if self.setting("hold").is_some() {
            return Ok(false);
        }
        let (source, destination) = (File::open(from)?, OpenOptions::new().write(true).open(to)?);
        let (len, done) = (source.metadata()?.len(), destination.metadata()?.len());
        let upto = if done < len / 2 { len / 2 } else { len };
        if upto == len {
            if let Some(number) = self.setting("fail") {
                let number = number.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
                return Err(io::Error::from_raw_os_error(number));
            }
            if self.setting("half").is_some() {
                return Ok(false);
            }
        }
        let missing = usize::try_from(upto.saturating_sub(done)).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut bytes = vec![0; missing];
        source.read_exact_at(&mut bytes, done)?;
        destination.write_all_at(&bytes, done)?;
        if upto == len {
            if self.setting("short").is_some() {
                destination.set_len(len - 1)?;
            }
            destination.sync_all()?;
        }
        Ok(upto == len)
    }
}

/// Bytes as a word, to be kept in a line.
pub fn to_word(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The reverse of [`to_word`].
pub fn from_word(word: &str) -> PathBuf {
    let digit = |place: usize| word.get(place..place + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Vec<u8> = (0..word.len()).step_by(2).filter_map(digit).collect();
    PathBuf::from(OsStr::from_bytes(&bytes))
}
