//! The tool for valgrind, `potential.c`: built when it is used, as it must fit the valgrind that
//! is there.
//!
//! Instructions are exact, of every thread and child, also on machines without counters. It takes
//! some 4 to 20 times a program's own time. Building takes a fraction of a second and needs valgrind with its
//! headers and libraries (Debian's package has them) and a C compiler; where one is missing, the
//! error says which. Programs run on x86-64 and AArch64, 64 bits.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use thiserror::Error;

const SOURCE: &str = include_str!("potential.c");

/// Valgrind's names of a platform: its own, and what its headers look for.
struct Platform {
    name: &'static str,
    triple: &'static str,
    defines: [&'static str; 4],
}

const PLATFORM: Option<Platform> = if cfg!(target_arch = "x86_64") {
    Some(Platform {
        name: "amd64-linux",
        triple: "x86_64-linux-gnu",
        defines: ["VGA_amd64", "VGO_linux", "VGP_amd64_linux", "VGPV_amd64_linux_vanilla"],
    })
} else if cfg!(target_arch = "aarch64") {
    Some(Platform {
        name: "arm64-linux",
        triple: "aarch64-linux-gnu",
        defines: ["VGA_arm64", "VGO_linux", "VGP_arm64_linux", "VGPV_arm64_linux_vanilla"],
    })
} else {
    None
};

/// What builds a freestanding program that valgrind's launcher starts.
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-fno-pie",
    "-no-pie",
    "-fno-stack-protector",
    "-fno-builtin",
    "-fno-strict-aliasing",
    "-fomit-frame-pointer",
    "-static",
    "-nodefaultlibs",
    "-nostartfiles",
    "-u",
    "_start",
    "-Wl,--build-id=none",
    "-Wl,-Ttext-segment=0x58000000",
];

/// Why there is no tool.
#[derive(Debug, Error)]
pub enum ToolError {
    /// Programs of this processor cannot be counted.
    #[error("instructions are counted on x86-64 and AArch64 only")]
    Platform,
    /// Something is not installed.
    #[error("{what} is missing: install {install}, which instructions are counted with")]
    Missing {
        /// What.
        what: String,
        /// How it comes.
        install: &'static str,
    },
    /// The compiler refuses it.
    #[error("the tool that counts instructions cannot be built: {0}")]
    Build(String),
    /// The system refuses something.
    #[error("cannot {0}: {1}")]
    System(&'static str, #[source] io::Error),
}

/// The tool, as long as it is held.
pub struct Tool {
    folder: TempDir,
    valgrind: PathBuf,
}

impl Tool {
    /// Builds it.
    pub fn build() -> Result<Tool, ToolError> {
        let platform = PLATFORM.ok_or(ToolError::Platform)?;
        let missing = |what: &str| ToolError::Missing {
            what: what.to_owned(),
            install: "valgrind with its development files (Debian: apt-get install valgrind gcc)",
        };
        let valgrind = on_path("valgrind").ok_or_else(|| missing("valgrind"))?;
        let prefix = valgrind.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
        let headers = prefix.join("include/valgrind");
        let core = format!("libcoregrind-{}.a", platform.name);
        let libraries = [format!("lib/{}", platform.triple), "lib".into(), "lib64".into()];
        let mut libraries = libraries.iter().map(|lib| prefix.join(lib).join("valgrind"));
        let libraries = libraries.find(|lib| lib.join(&core).exists());
        let libraries = libraries.ok_or_else(|| missing(&core))?;
        let preload = format!("vgpreload_core-{}.so", platform.name);
        let own = [prefix.join("libexec/valgrind"), libraries.clone()];
        let own = own.into_iter().find(|own| own.join(&preload).exists());
        let own = own.ok_or_else(|| missing(&preload))?;

        let system = |doing| move |e| ToolError::System(doing, e);
        let folder = tempfile::Builder::new().prefix("ssdkit-potential-").tempdir();
        let folder = folder.map_err(system("make a folder for what counts instructions"))?;
        for file in fs::read_dir(own).map_err(system("read valgrind's folder"))?.flatten() {
            symlink(file.path(), folder.path().join(file.file_name()))
                .map_err(system("link to valgrind's files"))?;
        }
        let source = folder.path().join("potential.c");
        fs::write(&source, SOURCE).map_err(system("write what counts instructions"))?;
        let built = Command::new("cc")
            .args(FLAGS)
            .args(platform.defines.map(|define| format!("-D{define}=1")))
            .arg("-I")
            .arg(headers)
            .arg("-o")
            .arg(folder.path().join(format!("potential-{}", platform.name)))
            .arg(source)
            .arg("-L")
            .arg(libraries)
            .args([format!("-lcoregrind-{}", platform.name), format!("-lvex-{}", platform.name)])
            .arg("-lgcc")
            .output();
        match built {
            Ok(built) if built.status.success() => Ok(Tool { folder, valgrind }),
            Ok(built) => {
                let said = String::from_utf8_lossy(&built.stderr);
                let first = said.lines().find(|line| line.contains("rror")).unwrap_or("no reason");
                Err(ToolError::Build(first.to_owned()))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(missing("cc, a C compiler,")),
            Err(e) => Err(ToolError::System("run the C compiler", e)),
        }
    }

    /// A command that runs a program and adds what it counts to a file.
    pub fn command(&self, to: &Path, program: &[OsString]) -> Command {
        let mut to_file = OsString::from("--to=");
        to_file.push(to);
        let mut command = Command::new(&self.valgrind);
        command
            .env("VALGRIND_LIB", self.folder.path())
            .env_remove("VALGRIND_OPTS")
            .args([
                "-q",
                "--tool=potential",
                "--trace-children=yes",
                "--log-file=/dev/null",
                "--max-threads=500",
            ])
            .arg(to_file)
            .args(program);
        command
    }
}

/// A program of that name where the shell looks.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
