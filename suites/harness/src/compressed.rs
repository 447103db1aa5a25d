//! Lines in files that are compressed as they are written. They are gzip's: `zcat` is everywhere.

use std::{
    ffi::OsString,
    fmt::Display,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, BufWriter, Write as _},
    path::Path,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

/// How much is given to the compressor at once.
const CHUNK: usize = 64 * 1024;
/// Smaller files of evidence stay as they are, to be read without a tool.
const LARGE: u64 = 64 * 1024;

/// A file that lines are added to.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Until its end.
    file: Option<BufWriter<GzEncoder<File>>>,
}

impl Lines {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let encoder = GzEncoder::new(File::create(path)?, Compression::fast());
        Ok(Self {
            file: Some(BufWriter::with_capacity(CHUNK, encoder)),
        })
    }

    pub(crate) fn write(&mut self, line: impl Display) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| writeln!(file, "{line}"))
    }

    /// Brings everything to the disk in such a way that it can be read, also if nothing follows.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), BufWriter::flush)
    }

    /// Nothing is written after it.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        let encoder = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        encoder.finish().map(drop)
    }
}

/// Reads a file line by line, without their ends. One whose process was killed is read as far as it is
/// whole.
///
/// # Errors
/// It can't be read, or is not compressed.
pub fn each_line(path: &Path, mut line: impl FnMut(&str)) -> io::Result<()> {
    let mut file = BufReader::with_capacity(CHUNK, GzDecoder::new(File::open(path)?));
    let mut text = String::new();
    loop {
        text.clear();
        match file.read_line(&mut text) {
            Ok(0) => return Ok(()),
            Ok(_) => line(text.trim_end_matches('\n')),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Compresses the large files in a folder, if it is there, and below it: each becomes one of its name and `.gz`.
///
/// # Errors
/// One can't be read or written; those before it are compressed.
pub(crate) fn compress_large(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            compress_large(&path)?;
        } else if kind.is_file() && entry.metadata()?.len() >= LARGE {
            let mut name = OsString::from(&path);
            name.push(".gz");
            let mut encoder = GzEncoder::new(File::create(name)?, Compression::fast());
            io::copy(&mut File::open(&path)?, &mut encoder)?;
            encoder.finish()?;
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_compressed_wherever_they_are_and_small_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("logs");
        fs::create_dir(&below).unwrap();
        let large = "{\"a\":1}\n".repeat(10_000);
        fs::write(below.join("large.log"), &large).unwrap();
        fs::write(below.join("small.log"), "a\n").unwrap();
        compress_large(folder.path()).unwrap();
        let names = fs::read_dir(&below)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["large.log.gz", "small.log"]);
        let mut read = String::new();
        each_line(&below.join("large.log.gz"), |line| {
            read += line;
            read += "\n";
        })
        .unwrap();
        assert_eq!(read, large);
        compress_large(&folder.path().join("missing")).unwrap();
    }

    #[test]
    fn what_is_not_compressed_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "{\"a\":1}\n".repeat(10)).unwrap();
        let read = each_line(file.path(), |line| panic!("{line}"));
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
