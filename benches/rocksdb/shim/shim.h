// RocksDB for Rust: its files are kept by callbacks, its calls are plain C.
//
// All strings are bytes with a length. Functions that may fail give 0 or a
// positive value, or one of the codes below, and write what went wrong into
// `error`, ended by a zero and cut to `room` bytes.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// What callbacks say.
enum { RB_OK = 0, RB_MISSING = -1, RB_FULL = -2, RB_FAILED = -3 };

// The files. `files` is passed through; a file is a handle that `close` ends.
struct RbFiles {
  void* files;
  // An empty file, or null.
  void* (*make)(void* files, const char* name, size_t len);
  // The file of a name, or null.
  void* (*open)(void* files, const char* name, size_t len);
  void (*close)(void* files, void* file);
  int (*append)(void* files, void* file, const char* data, size_t len);
  int (*sync)(void* files, void* file);
  int (*write_out)(void* files, void* file);
  int (*finish)(void* files, void* file);
  // Bytes that can be read, and bytes that were appended.
  uint64_t (*size)(void* files, void* file);
  uint64_t (*length)(void* files, void* file);
  int64_t (*read)(void* files, void* file, uint64_t offset, char* to, size_t len);
  int (*remove)(void* files, const char* name, size_t len);
  int (*rename)(void* files, const char* from, size_t from_len, const char* to, size_t to_len);
  int (*commit)(void* files);
  void (*list)(void* files, const char* prefix, size_t len, void* to,
               void (*each)(void* to, const char* name, size_t len));
};

// How RocksDB is set up.
struct RbOptions {
  // Blocks, indexes, filters, and memtables together.
  uint64_t cache;
  // Of these, at most so many for memtables, in two of half the size.
  uint64_t memtables;
  // Each write is durable when it returns.
  int sync;
  int background_jobs;
};

// Counters since the start.
struct RbCounters {
  uint64_t block_hits, block_misses, stalls_us, wal_bytes, flush_bytes, compaction_read,
      compaction_written;
};

struct Rb;
struct RbReader;

Rb* rb_open(const RbFiles* files, const RbOptions* options, char* error, size_t room);
// Closes; all must be durable that is asked to be.
int rb_close(Rb* db, char* error, size_t room);
int rb_put(Rb* db, const char* key, size_t key_len, const char* value, size_t len, char* error,
           size_t room);
int rb_delete(Rb* db, const char* key, size_t key_len, char* error, size_t room);
// What a thread reads with; a value stays until its next read.
RbReader* rb_reader();
void rb_reader_drop(RbReader* reader);
// 1 when the key is there, 0 when it is not.
int rb_get(Rb* db, RbReader* reader, const char* key, size_t key_len, const char** value,
           size_t* len, char* error, size_t room);
// Records from a key on, at most `count`. Gives how many there were.
int64_t rb_scan(Rb* db, const char* key, size_t key_len, uint64_t count, void* to,
                void (*each)(void* to, const char* key, size_t key_len, const char* value,
                             size_t len),
                char* error, size_t room);
// Writes the memtables and waits until no compaction is wanted.
int rb_settle(Rb* db, char* error, size_t room);
void rb_counters(Rb* db, RbCounters* to);
}
