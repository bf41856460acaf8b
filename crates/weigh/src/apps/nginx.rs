//! The server: nginx of the distribution, one process, on loopback, in a temporary folder, with copies of its TLS libraries that no other
//! process has mapped.

use super::programs::{self, Programs};
use super::{Error, Result, failed};
use lightfoot_kernel::{os, spawn};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// User and group `nobody` of every distribution: the server runs as such if we are root.
const NOBODY: u32 = 65534;
/// Until the server answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// Another program may take a free port before the server does.
const ATTEMPTS: u32 = 5;

/// nginx under way. Dropped, it is killed, and its folder is removed.
#[derive(Debug)]
pub struct Server {
    // Fields drop in this order.
    status: Status,
    process: Process,
    url: String,
    libssl: Option<PathBuf>,
    cpu: Option<u32>,
    _folder: TempDir,
}

/// Killed when dropped.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; its id is ours until it is waited for.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What the server has done up to now.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// When.
    pub at: Instant,
    /// Requests that have been begun, by its own count. Each reading is one.
    pub requests: u64,
    /// CPU time of its process, in ns: what probes take in it is part of that.
    pub cpu_ns: u64,
}

impl Server {
    /// Starts it with files of these sizes, and waits until it answers. With `tls`: with a certificate made for this run. On this CPU only if one
    /// is given.
    ///
    /// # Errors
    /// What it said when it ended, or if its own libraries are not what it uses.
    pub fn start(programs: &Programs, sizes: &[u64], tls: bool, cpu: Option<u32>) -> Result<Server> {
        let folder = tempfile::Builder::new().prefix("lightfoot-weigh-").tempdir();
        let folder = folder.map_err(|e| failed("cannot make a temporary folder", e))?;
        let libssl = prepare(programs, folder.path(), sizes, tls).map_err(|e| {
            if let Error::Failed(what) = e { failed("cannot prepare a server", what) } else { e }
        })?;
        let mut attempt = 1;
        let (process, ports) = loop {
            let ports = [free_port()?, free_port()?];
            match start(programs, folder.path(), ports, tls, cpu) {
                Ok(process) => break (process, ports),
                Err(Error::Failed(what)) if what.contains("Address already in use") && attempt < ATTEMPTS => {
                    attempt += 1
                }
                Err(error) => return Err(error),
            }
        };
        let [port, status] = ports;
        let status = Status::new(status)?;
        let scheme = if tls { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{port}");
        let server = Server { status, process, url, libssl, cpu, _folder: folder };
        if let Some(libssl) = &server.libssl {
            check_mapped(server.pid(), libssl)?;
        }
        Ok(server)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Where the file of this size is.
    pub fn url(&self, size: u64) -> String {
        format!("{}/{size}", self.url)
    }

    /// Its own copy of libssl.
    pub fn libssl(&self) -> Option<&Path> {
        self.libssl.as_deref()
    }

    /// The CPU that it runs on, if it is one.
    pub fn cpu(&self) -> Option<u32> {
        self.cpu
    }

    /// What it has done up to now. Asks it, on a connection of its own: one request.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn reading(&mut self) -> Result<Reading> {
        let requests = self.status.requests()?;
        let cpu_ns =
            os::cpu_ns_of(self.pid()).ok_or_else(|| Error::Failed("the server (nginx) has ended".into()))?;
        Ok(Reading { at: Instant::now(), requests, cpu_ns })
    }
}

/// Two CPUs that this process may use, for the server and for the load; nothing if there is only one.
pub fn two_cpus() -> Option<(u32, u32)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let cpus = cpus_in(list);
    // Interrupts of devices usually come to the first one.
    Some((*cpus.last()?, *cpus.get(cpus.len().checked_sub(2)?)?))
}

fn cpus_in(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Fills the folder; the copy of libssl.
fn prepare(programs: &Programs, folder: &Path, sizes: &[u64], tls: bool) -> Result<Option<PathBuf>> {
    let io = |what: &Path, e: std::io::Error| failed(what.display(), os::plain(&e));
    for name in ["html", "run", "lib"] {
        let path = folder.join(name);
        fs::create_dir(&path).map_err(|e| io(&path, e))?;
    }
    for size in sizes {
        let path = folder.join("html").join(size.to_string());
        // Not all the same byte, should anything on the way compress.
        let bytes: Vec<u8> =
            (0..*size).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
        fs::write(&path, bytes).map_err(|e| io(&path, e))?;
    }
    let mut libssl = None;
    if tls {
        certify(programs, folder)?;
        for library in programs::tls_libraries(&programs.nginx)? {
            let name = library.file_name().unwrap_or_default();
            let copy = folder.join("lib").join(name);
            fs::copy(&library, &copy).map_err(|e| io(&copy, e))?;
            if name.to_string_lossy().starts_with("libssl.so") {
                libssl = Some(copy);
            }
        }
    }
    if as_nobody(folder) {
        open_to_nobody(folder).map_err(|e| io(folder, e))?;
    }
    Ok(libssl)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Whether the server can run as nobody: we are root, and everybody may walk to the folder.
fn as_nobody(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let open = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0);
    is_root() && folder.ancestors().skip(1).filter(|path| *path != Path::new("")).all(open)
}

/// The server runs as nobody: what it needs is readable for it, its own folder belongs to it.
fn open_to_nobody(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{PermissionsExt, chown};
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for name in ["html", "lib"] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(folder.join(name))? {
            fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o644))?;
        }
    }
    for name in ["run", "key.pem", "certificate.pem"] {
        match chown(folder.join(name), Some(NOBODY), Some(NOBODY)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Makes a key and a certificate for this run.
fn certify(programs: &Programs, folder: &Path) -> Result<()> {
    let mut command = Command::new(&programs.openssl);
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]);
    command.args(["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "certificate.pem"]);
    let out = command.current_dir(folder).stdin(Stdio::null()).output().map_err(|e| failed("openssl", e))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(failed(
            "openssl",
            String::from_utf8_lossy(&out.stderr).lines().last().unwrap_or("no certificate"),
        )),
    }
}

/// A port of loopback that is free at this moment.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| failed("loopback", e))?;
    Ok(listener.local_addr().map_err(|e| failed("loopback", e))?.port())
}

fn configuration(folder: &Path, [port, status]: [u16; 2], tls: bool) -> String {
    let run = folder.join("run");
    let run = run.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {run}/{name};\n"))
        .concat();
    let folder = folder.display();
    let listen = if tls {
        format!(
            "listen 127.0.0.1:{port} ssl;\n        ssl_certificate {folder}/certificate.pem;\n        \
             ssl_certificate_key {folder}/key.pem;\n        ssl_protocols TLSv1.2 TLSv1.3;"
        )
    } else {
        format!("listen 127.0.0.1:{port};")
    };
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {run}/nginx.pid;
error_log {run}/error.log warn;
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    open_file_cache max=64;
{temporary}    server {{
        {listen}
        root {folder}/html;
    }}
    server {{
        listen 127.0.0.1:{status};
        location = /status {{
            stub_status;
        }}
    }}
}}
"
    )
}

fn start(
    programs: &Programs,
    folder: &Path,
    ports: [u16; 2],
    tls: bool,
    cpu: Option<u32>,
) -> Result<Process> {
    use std::os::unix::process::CommandExt;
    let configured = folder.join("nginx.conf");
    fs::write(&configured, configuration(folder, ports, tls)).map_err(|e| failed(configured.display(), e))?;
    let said = folder.join("said");
    let log = fs::File::create(&said).map_err(|e| failed(said.display(), e))?;
    let mut command = Command::new(&programs.nginx);
    command.arg("-p").arg(folder).arg("-c").arg(&configured).env("LD_LIBRARY_PATH", folder.join("lib"));
    // Not in our process group: Ctrl-C is for us, and we end it.
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    if as_nobody(folder) {
        command.uid(NOBODY).gid(NOBODY);
    }
    spawn::ends_with_us(&mut command);
    if let Some(cpu) = cpu {
        spawn::runs_on(&mut command, cpu);
    }
    let child = command.spawn().map_err(|e| failed(programs.nginx.display(), e))?;
    let mut process = Process(child);
    let started = Instant::now();
    loop {
        if let Ok(Some(status)) = process.0.try_wait() {
            let said = [said, folder.join("run/error.log")]
                .map(|path| fs::read_to_string(path).unwrap_or_default())
                .concat();
            let why = said
                .lines()
                .rev()
                .find(|line| line.contains("[emerg]"))
                .or(said.lines().last())
                .map(str::to_owned);
            return Err(failed("the server (nginx) ended", why.unwrap_or_else(|| status.to_string())));
        }
        if ports.iter().all(|&port| TcpStream::connect(address(port)).is_ok()) {
            return Ok(process);
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::Failed("the server (nginx) does not answer".into()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Whether the library that the process runs is this file and no other.
fn check_mapped(pid: u32, library: &Path) -> Result<()> {
    let inode = library.metadata().map_err(|e| failed(library.display(), e))?.ino();
    let maps =
        fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|e| failed("the server's mappings", e))?;
    let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mapped = inodes_of(&maps, &name);
    if mapped.is_empty() || mapped.iter().any(|&mapped| mapped != inode) {
        let what = format!(
            "the server does not use its own copy of {name}: probes would be seen by other programs, too"
        );
        return Err(Error::Failed(what));
    }
    Ok(())
}

/// Inodes of the mapped files with this name.
fn inodes_of(maps: &str, name: &str) -> Vec<u64> {
    let inode = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let inode = words.nth(4)?.parse().ok()?;
        (words.next()?.rsplit('/').next() == Some(name)).then_some(inode)
    };
    maps.lines().filter_map(inode).collect()
}

/// A connection to the server's own counters (`stub_status`).
#[derive(Debug)]
struct Status {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Status {
    fn new(port: u16) -> Result<Status> {
        let stream = TcpStream::connect(address(port)).map_err(|e| failed("the server's counters", e))?;
        let patience = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_nodelay(true));
        patience.map_err(|e| failed("the server's counters", e))?;
        Ok(Status { stream, buffer: vec![0; 4096] })
    }

    fn requests(&mut self) -> Result<u64> {
        let lost = |e: std::io::Error| failed("the server's counters", e);
        self.stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").map_err(lost)?;
        let mut length = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[length..]).map_err(lost)?;
            if read == 0 {
                return Err(Error::Failed(
                    "the server (nginx) has closed the connection to its counters".into(),
                ));
            }
            length += read;
            let text = String::from_utf8_lossy(&self.buffer[..length]);
            // Its last line.
            if text.contains("Waiting: ") && text.ends_with('\n') {
                return requests_in(&text)
                    .ok_or_else(|| failed("the server's counters", "cannot be understood"));
            }
        }
    }
}

/// Third number of the line behind `server accepts handled requests`.
fn requests_in(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("server accepts handled requests")?;
    rest.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_count() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 97\r\n\r\nActive connections: 2 \n\
                    server accepts handled requests\n 16 17 31070465 \nReading: 0 Writing: 1 Waiting: 1 \n";
        assert_eq!(requests_in(text), Some(31_070_465));
        assert_eq!(requests_in("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }

    #[test]
    fn a_library_is_known_by_its_inode() {
        let maps = "7f0000-7f1000 r-xp 00000000 fe:00 4711    /tmp/x/lib/libssl.so.3\n\
                    7f2000-7f3000 r-xp 00000000 fe:00 4712    /usr/lib/libcrypto.so.3\n\
                    7f4000-7f5000 rw-p 00000000 00:00 0 \n7f6000-7f7000 r--p 00000000 fe:00 4713    /usr/lib/libssl.so.3\n";
        assert_eq!(inodes_of(maps, "libssl.so.3"), [4711, 4713]);
        assert!(inodes_of(maps, "libssl.so").is_empty());
    }

    #[test]
    fn cpus_are_read() {
        assert_eq!(cpus_in("\t0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpus_in("7"), [7]);
        assert!(cpus_in("").is_empty());
    }

    #[test]
    fn only_loopback_is_listened_on_and_nothing_is_written_elsewhere() {
        for tls in [false, true] {
            let text = configuration(Path::new("/tmp/folder"), [4001, 4002], tls);
            let listens: Vec<&str> = text.lines().filter(|line| line.contains("listen")).collect();
            assert!(
                listens.len() == 2 && listens.iter().all(|line| line.contains("listen 127.0.0.1:400")),
                "{text}"
            );
            for line in text.lines().filter(|line| line.contains('/') && !line.contains("location")) {
                assert!(line.contains("/tmp/folder/"), "{line}");
            }
            assert_eq!(text.contains("ssl_certificate_key"), tls);
            assert_eq!(text.matches('{').count(), text.matches('}').count());
        }
    }
}
