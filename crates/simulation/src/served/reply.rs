//! Replies of a server, as its clients understand them.

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A word, which is OK here.
    Ok,
    /// An error.
    Error(String),
    /// A number.
    Int(i64),
    /// Bytes, or none.
    Bulk(Option<Vec<u8>>),
    /// Several.
    Array(Vec<Reply>),
}

impl Reply {
    /// The reply at the begin of `bytes`, and its length there; `None` where it is not whole.
    pub fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
        let line = bytes.windows(2).position(|two| two == b"\r\n")?;
        let text = String::from_utf8_lossy(&bytes[1..line]);
        let number = || text.parse::<i64>().expect("a reply has a number there");
        let begin = line + 2;
        Some(match bytes[0] {
            b'+' => (Reply::Ok, begin),
            b'-' => (Reply::Error(text.into()), begin),
            b':' => (Reply::Int(number()), begin),
            b'$' if number() < 0 => (Reply::Bulk(None), begin),
            b'$' => {
                let end = begin + number() as usize;
                let whole = bytes.get(begin..end + 2)?;
                (Reply::Bulk(Some(whole[..whole.len() - 2].to_vec())), end + 2)
            }
            b'*' => {
                let (mut all, mut at) = (Vec::new(), begin);
                for _ in 0..number() {
                    let (one, len) = Reply::parse(&bytes[at..])?;
                    all.push(one);
                    at += len;
                }
                (Reply::Array(all), at)
            }
            other => panic!("no reply begins with {other}"),
        })
    }
}
