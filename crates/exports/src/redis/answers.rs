//! Answers to commands that need nothing of the store.

use std::fmt::Write;

use waiting::speculate::Token;

use super::client::Client;
use super::command::{self, Command};
use super::glob::Pattern;
use super::resp::{self, Args};
use super::rope::Rope;
use super::serving::Serving;
use crate::limits::Limits;

impl Serving<'_> {
    /// Answers a command that needs nothing of the store. Gives what the answer
    /// depends on.
    pub(super) fn answer(&mut self, who: u32, command: Command) -> Token {
        let mut client = self.clients[who as usize].take();
        if let Some(client) = &mut client {
            self.at_once(client, command);
        }
        self.clients[who as usize] = client;
        // It tells how many keys there are.
        if command == Command::Info { self.database.seen_all() } else { Token::NONE }
    }

    fn at_once(&mut self, client: &mut Client, command: Command) {
        let Client { parser, input, start, replies, is_closing, .. } = client;
        let out = &mut replies.out;
        let args = parser.args(&input[*start..]);
        match command {
            Command::Ping if args.len() > 2 => {
                resp::error(out, "ERR wrong number of arguments for 'ping' command");
            }
            Command::Ping if args.len() == 2 => resp::bulk(out, args.get(1)),
            Command::Ping => resp::simple(out, "PONG"),
            Command::Echo => resp::bulk(out, args.get(1)),
            Command::Quit => {
                resp::simple(out, "OK");
                *is_closing = true;
            }
            Command::Select if args.get(1) == b"0" => resp::simple(out, "OK"),
            Command::Select if resp::integer(args.get(1)).is_none() => {
                resp::error(out, "ERR value is not an integer or out of range");
            }
            Command::Select => resp::error(out, "ERR DB index is out of range"),
            Command::Info => resp::bulk(out, self.info().as_bytes()),
            Command::Config => self.config(args, out),
            Command::Client => match args.get(1).to_ascii_lowercase().as_slice() {
                b"setname" if args.len() != 3 => {
                    resp::error(out, "ERR wrong number of arguments for 'client|setname' command");
                }
                b"setname" if !args.get(2).iter().all(u8::is_ascii_graphic) => resp::error(
                    out,
                    "ERR Client names cannot contain spaces, newlines or special characters.",
                ),
                b"setname" | b"setinfo" => resp::simple(out, "OK"),
                _ => resp::error(out, "ERR unknown subcommand"),
            },
            Command::Commands if args.len() > 1 && args.get(1).eq_ignore_ascii_case(b"count") => {
                match args.len() {
                    2 => resp::int(out, command::COUNT as i64),
                    _ => resp::error(
                        out,
                        "ERR wrong number of arguments for 'command|count' command",
                    ),
                }
            }
            // Clients that ask what commands there are manage without.
            _ => resp::array(out, 0),
        }
        if *is_closing {
            input.truncate(*start + parser.understood());
        }
    }

    fn config(&self, args: Args<'_>, out: &mut Rope) {
        if !args.get(1).eq_ignore_ascii_case(b"get") || args.len() < 3 {
            return resp::error(out, "ERR only CONFIG GET is known");
        }
        let Limits { clients, memory, .. } = self.options.limits;
        let (clients, memory) = (clients.to_string(), memory.to_string());
        let all = [
            ("save", ""),
            ("appendonly", "yes"),
            ("appendfsync", self.options.sync.name()),
            ("maxclients", &clients),
            ("maxmemory-clients", &memory),
            ("databases", "1"),
        ];
        let longest = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut asked = [false; 6];
        for pattern in args.from(2) {
            let pattern = Pattern::new(&pattern.to_ascii_lowercase(), longest);
            for (asked, (name, _)) in asked.iter_mut().zip(&all) {
                *asked |= pattern.matches(name.as_bytes(), &mut 0);
            }
        }
        let found = all.into_iter().zip(asked).filter(|(_, asked)| *asked);
        resp::array(out, 2 * found.clone().count());
        for ((name, value), _) in found {
            resp::bulk(out, name.as_bytes());
            resp::bulk(out, value.as_bytes());
        }
    }

    fn info(&self) -> String {
        let mut text = String::from("# Server\r\nredis_version:7.0.0\r\nserver_name:ssdkit\r\n");
        let mut say = |name: &str, value: u64| {
            // Writing to memory does not fail.
            let _ = write!(text, "{name}:{value}\r\n");
        };
        let clients = self.clients.len() - self.free.len();
        say("uptime_in_seconds", self.start.elapsed().as_secs());
        say("connected_clients", clients as u64);
        say("total_connections_received", self.report.connections);
        say("rejected_connections", self.report.refused);
        say("clients_memory", self.memory + self.database.trash.bytes());
        say("evicted_clients", self.report.evicted);
        say("total_commands_processed", self.report.commands);
        say("flushes", self.report.flushes);
        let records = self.database.records();
        match records.tree() {
            Some(tree) => {
                let cache = tree.cache_counters();
                say("cache_bytes", tree.memory());
                say("cache_lookups", cache.lookups);
                say("cache_misses", cache.misses);
                say("pages", tree.pages());
                say("pages_written", tree.counters().pages_written);
            }
            None => say("value_buffers_bytes", records.memory()),
        }
        let keys = self.database.keys();
        let _ = write!(text, "# Keyspace\r\ndb0:keys={keys},expires=0,avg_ttl=0\r\n");
        text
    }
}
