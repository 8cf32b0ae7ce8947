//! A watcher that writes down what it is told.

use files::Operation;

use crate::watcher::{Answer, Wants, Watcher};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// To a mapped file.
    Operation(Operation),
    /// Written to what is not mapped.
    Output {
        /// See [`Watcher::output`].
        stream: u32,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A process ends.
    Exit {
        /// Its number.
        process: u32,
        /// Its code.
        code: i32,
    },
}

/// All that happened, in order, and the calls that were refused. It grows with what the program
/// does.
#[derive(Debug, Default)]
pub struct Recorder {
    /// In order.
    pub events: Vec<Event>,
    /// See [`Watcher::refused`].
    pub refused: Vec<&'static str>,
    wants: Wants,
}

impl Recorder {
    /// One that hears of outputs too.
    pub fn with_outputs() -> Self {
        Self { wants: Wants { outputs: true, ..Wants::default() }, ..Self::default() }
    }

    /// What was done to mapped files.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.events.iter().filter_map(|event| match event {
            Event::Operation(operation) => Some(operation),
            _ => None,
        })
    }

    /// What was written to a stream, in one piece.
    pub fn output_of(&self, which: u32) -> Vec<u8> {
        let mut all = Vec::new();
        for event in &self.events {
            match event {
                Event::Output { stream, data } if *stream == which => all.extend_from_slice(data),
                _ => {}
            }
        }
        all
    }
}

impl Watcher for Recorder {
    fn wants(&self) -> Wants {
        self.wants
    }

    fn after(&mut self, operation: &Operation) -> Answer {
        self.events.push(Event::Operation(operation.clone()));
        Answer::NOW
    }

    fn output(&mut self, stream: u32, data: &[u8]) {
        self.events.push(Event::Output { stream, data: data.to_vec() });
    }

    fn refused(&mut self, call: &'static str) {
        self.refused.push(call);
    }

    fn exiting(&mut self, process: u32, code: i32) {
        self.events.push(Event::Exit { process, code });
    }
}
