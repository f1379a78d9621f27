//! Which processes begin and end, as the kernel tells it (its process events connector), so that
//! counting them slows none of them.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketType, bind, recv, send, socket,
};

/// A process that began, by the thread group that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    pub pid: i32,
    pub parent: i32,
    /// From its beginning to its end, if that was seen.
    pub life: Option<Duration>,
}

/// Watches the processes of the machine.
pub struct Events {
    stop: Arc<AtomicBool>,
    reader: JoinHandle<Vec<Event>>,
}

enum Event {
    Fork { parent: i32, child: i32, at: u64 },
    Exit { pid: i32, at: u64 },
}

// Numbers of linux/netlink.h, linux/connector.h and linux/cn_proc.h.
const NETLINK_CONNECTOR: NonZero<u32> = NonZero::new(11).expect("eleven");
const CN_IDX_PROC: u32 = 1;
const NLMSG_DONE: u16 = 3;
const NLMSG_HEADER: usize = 16;
const CN_HEADER: usize = 20;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_EVENT_FORK: u32 = 1;
const PROC_EVENT_EXIT: u32 = 0x8000_0000;

impl Events {
    /// From now on. Needs root and a kernel with `CONFIG_PROC_EVENTS`.
    pub fn watch() -> Self {
        let protocol = Protocol::from_raw(NETLINK_CONNECTOR);
        let socket = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(protocol));
        let socket = socket.expect("a netlink socket");
        set_socket_recv_buffer_size(&socket, 8 << 20).expect("a large buffer");
        let patience = Some(Duration::from_millis(50));
        set_socket_timeout(&socket, Timeout::Recv, patience).expect("a timeout");
        bind(&socket, &SocketAddrNetlink::new(0, CN_IDX_PROC)).expect("process events");
        send(&socket, &subscription(), SendFlags::empty()).expect("process events");

        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let reader = thread::spawn(move || {
            let mut events = Vec::new();
            let mut message = [0; 1024];
            loop {
                match recv(&socket, &mut message[..], RecvFlags::empty()) {
                    Ok((length, _)) => events.extend(event(&message[..length])),
                    Err(rustix::io::Errno::AGAIN) if stopped.load(Ordering::Relaxed) => {
                        return events;
                    }
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(error) => panic!("process events: {error}"),
                }
            }
        });
        Self { stop, reader }
    }

    /// The processes that began below `ancestor` since then, in order.
    pub fn below(self, ancestor: i32) -> Vec<Begun> {
        self.stop.store(true, Ordering::Relaxed);
        let events = self.reader.join().expect("the reader of events");
        let mut begun: Vec<(Begun, u64)> = Vec::new();
        for event in events {
            match event {
                Event::Fork { parent, child, at } => {
                    if parent == ancestor || begun.iter().any(|(known, _)| known.pid == parent) {
                        begun.push((Begun { pid: child, parent, life: None }, at));
                    }
                }
                Event::Exit { pid, at } => {
                    for (process, since) in &mut begun {
                        if process.pid == pid {
                            process.life = Some(Duration::from_nanos(at - *since));
                        }
                    }
                }
            }
        }
        begun.into_iter().map(|(process, _)| process).collect()
    }
}

fn subscription() -> Vec<u8> {
    let operation = PROC_CN_MCAST_LISTEN.to_ne_bytes();
    let length = NLMSG_HEADER + CN_HEADER + operation.len();
    let mut message = Vec::with_capacity(length);
    message.extend(u32::try_from(length).expect("a short message").to_ne_bytes());
    message.extend(NLMSG_DONE.to_ne_bytes());
    message.extend([0; 10]);
    // Index and value that name the connector, sequence, acknowledgement, length, flags.
    for word in [CN_IDX_PROC, 1, 0, 0] {
        message.extend(word.to_ne_bytes());
    }
    message.extend(4_u16.to_ne_bytes());
    message.extend([0; 2]);
    message.extend(operation);
    message
}

/// Of processes, not of threads.
fn event(message: &[u8]) -> Option<Event> {
    let data = message.get(NLMSG_HEADER + CN_HEADER..)?;
    let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let pid = |at: usize| i32::try_from(word(at)?).ok();
    // What, processor, time; then what belongs to the event.
    let at = u64::from_ne_bytes(data.get(8..16)?.try_into().ok()?);
    match word(0)? {
        PROC_EVENT_FORK if pid(24)? == pid(28)? => {
            Some(Event::Fork { parent: pid(20)?, child: pid(28)?, at })
        }
        PROC_EVENT_EXIT if pid(16)? == pid(20)? => Some(Event::Exit { pid: pid(20)?, at }),
        _ => None,
    }
}
