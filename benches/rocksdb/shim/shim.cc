#include "shim.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>
#include <rocksdb/write_buffer_manager.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

using namespace rocksdb;

namespace {

IOStatus status(int64_t code, const std::string& what) {
  if (code >= 0) return IOStatus::OK();
  if (code == RB_MISSING) return IOStatus::NotFound(what);
  if (code == RB_FULL) return IOStatus::NoSpace(what);
  return IOStatus::IOError(what);
}

// A handle to a file, closed when it goes.
class Handle {
 public:
  Handle(const RbFiles* f, void* file, std::string name)
      : f_(f), file_(file), name_(std::move(name)) {}
  ~Handle() { f_->close(f_->files, file_); }
  Handle(const Handle&) = delete;
  void operator=(const Handle&) = delete;

  IOStatus Read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
    int64_t got = f_->read(f_->files, file_, offset, scratch, n);
    *result = Slice(scratch, got < 0 ? 0 : static_cast<size_t>(got));
    return status(got, name_);
  }
  IOStatus Append(const Slice& data) {
    return status(f_->append(f_->files, file_, data.data(), data.size()), name_);
  }
  IOStatus Sync() { return status(f_->sync(f_->files, file_), name_); }
  IOStatus WriteOut() { return status(f_->write_out(f_->files, file_), name_); }
  IOStatus Finish() { return status(f_->finish(f_->files, file_), name_); }
  uint64_t Length() const { return f_->length(f_->files, file_); }

 private:
  const RbFiles* f_;
  void* file_;
  std::string name_;
};

class Sequential : public FSSequentialFile {
 public:
  explicit Sequential(std::unique_ptr<Handle> h) : h_(std::move(h)) {}
  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    IOStatus s = h_->Read(at_, n, result, scratch);
    at_ += result->size();
    return s;
  }
  IOStatus Skip(uint64_t n) override {
    at_ += n;
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<Handle> h_;
  uint64_t at_ = 0;
};

class RandomAccess : public FSRandomAccessFile {
 public:
  explicit RandomAccess(std::unique_ptr<Handle> h) : h_(std::move(h)) {}
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return h_->Read(offset, n, result, scratch);
  }

 private:
  std::unique_ptr<Handle> h_;
};

class Writable : public FSWritableFile {
 public:
  explicit Writable(std::unique_ptr<Handle> h) : h_(std::move(h)) {}
  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    return h_->Append(data);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return h_->Finish(); }
  // As with a file of the system, what is flushed is with the file layer.
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return h_->Sync(); }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return h_->Length(); }

 private:
  std::unique_ptr<Handle> h_;
};

class Folder : public FSDirectory {
 public:
  explicit Folder(const RbFiles* f) : f_(f) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return status(f_->commit(f_->files), "directory");
  }

 private:
  const RbFiles* f_;
};

class Lock : public FileLock {
 public:
  explicit Lock(std::string name) : name(std::move(name)) {}
  const std::string name;
};

// No log of what RocksDB does.
class NoLogger : public Logger {
 public:
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

// Folders are in the names only: each is there.
class BlockFiles : public FileSystem {
 public:
  explicit BlockFiles(const RbFiles& f) : f_(f) {}
  const char* Name() const override { return "BlockFiles"; }

  IOStatus NewSequentialFile(const std::string& name, const FileOptions&,
                             std::unique_ptr<FSSequentialFile>* to, IODebugContext*) override {
    return Open<Sequential>(name, to);
  }
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions&,
                               std::unique_ptr<FSRandomAccessFile>* to,
                               IODebugContext*) override {
    return Open<RandomAccess>(name, to);
  }
  IOStatus NewWritableFile(const std::string& raw, const FileOptions&,
                           std::unique_ptr<FSWritableFile>* to, IODebugContext*) override {
    std::string name = Clean(raw);
    void* file = f_.make(f_.files, name.data(), name.size());
    if (file == nullptr) return IOStatus::IOError(name);
    to->reset(new Writable(std::make_unique<Handle>(&f_, file, name)));
    return IOStatus::OK();
  }
  IOStatus NewDirectory(const std::string&, const IOOptions&, std::unique_ptr<FSDirectory>* to,
                        IODebugContext*) override {
    to->reset(new Folder(&f_));
    return IOStatus::OK();
  }
  IOStatus FileExists(const std::string& name, const IOOptions&, IODebugContext*) override {
    uint64_t size;
    return Size(Clean(name), &size);
  }
  IOStatus GetChildren(const std::string& dir, const IOOptions&, std::vector<std::string>* to,
                       IODebugContext*) override {
    to->clear();
    std::string prefix = Clean(dir + "/");
    f_.list(f_.files, prefix.data(), prefix.size(), to, [](void* t, const char* name, size_t n) {
      static_cast<std::vector<std::string>*>(t)->emplace_back(name, n);
    });
    return IOStatus::OK();
  }
  IOStatus DeleteFile(const std::string& raw, const IOOptions&, IODebugContext*) override {
    std::string name = Clean(raw);
    return status(f_.remove(f_.files, name.data(), name.size()), name);
  }
  IOStatus CreateDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus CreateDirIfMissing(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus DeleteDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus GetFileSize(const std::string& name, const IOOptions&, uint64_t* size,
                       IODebugContext*) override {
    return Size(Clean(name), size);
  }
  IOStatus GetFileModificationTime(const std::string&, const IOOptions&, uint64_t* time,
                                   IODebugContext*) override {
    *time = 0;
    return IOStatus::OK();
  }
  IOStatus RenameFile(const std::string& raw_from, const std::string& raw_to, const IOOptions&,
                      IODebugContext*) override {
    std::string from = Clean(raw_from), to = Clean(raw_to);
    return status(f_.rename(f_.files, from.data(), from.size(), to.data(), to.size()), from);
  }
  IOStatus LockFile(const std::string& raw, const IOOptions&, FileLock** lock,
                    IODebugContext*) override {
    std::string name = Clean(raw);
    std::lock_guard<std::mutex> guard(mutex_);
    if (!locks_.insert(name).second) return IOStatus::IOError("locked", name);
    *lock = new Lock(name);
    return IOStatus::OK();
  }
  IOStatus UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) override {
    std::lock_guard<std::mutex> guard(mutex_);
    locks_.erase(static_cast<Lock*>(lock)->name);
    delete lock;
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    *path = "/test";
    return IOStatus::OK();
  }
  IOStatus NewLogger(const std::string&, const IOOptions&, std::shared_ptr<Logger>* to,
                     IODebugContext*) override {
    *to = std::make_shared<NoLogger>();
    return IOStatus::OK();
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* to,
                           IODebugContext*) override {
    *to = path;
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& name, const IOOptions&, bool* is,
                       IODebugContext*) override {
    uint64_t size;
    *is = !Size(Clean(name), &size).ok();
    return IOStatus::OK();
  }

 private:
  // Without the slashes that say nothing.
  static std::string Clean(const std::string& name) {
    std::string clean;
    for (char c : name)
      if (c != '/' || clean.empty() || clean.back() != '/') clean += c;
    return clean;
  }
  std::unique_ptr<Handle> Find(const std::string& name) {
    void* file = f_.open(f_.files, name.data(), name.size());
    return file == nullptr ? nullptr : std::make_unique<Handle>(&f_, file, name);
  }
  template <class File, class Base>
  IOStatus Open(const std::string& raw, std::unique_ptr<Base>* to) {
    std::string name = Clean(raw);
    auto handle = Find(name);
    if (handle == nullptr) return IOStatus::PathNotFound(name);
    to->reset(new File(std::move(handle)));
    return IOStatus::OK();
  }
  IOStatus Size(const std::string& name, uint64_t* size) {
    void* file = f_.open(f_.files, name.data(), name.size());
    if (file == nullptr) return IOStatus::NotFound(name);
    *size = f_.size(f_.files, file);
    f_.close(f_.files, file);
    return IOStatus::OK();
  }

  const RbFiles f_;
  std::mutex mutex_;
  std::set<std::string> locks_;
};

int fail(const Status& s, char* error, size_t room) {
  if (s.ok()) return RB_OK;
  std::string text = s.ToString();
  if (room > 0) {
    size_t n = std::min(room - 1, text.size());
    std::memcpy(error, text.data(), n);
    error[n] = 0;
  }
  return RB_FAILED;
}

}  // namespace

struct Rb {
  std::unique_ptr<Env> env;
  std::shared_ptr<Statistics> statistics;
  std::unique_ptr<DB> db;
  WriteOptions write;
  ReadOptions read;
};

struct RbReader {
  PinnableSlice value;
};

Rb* rb_open(const RbFiles* files, const RbOptions* o, char* error, size_t room) {
  auto rb = std::make_unique<Rb>();
  rb->env = NewCompositeEnv(std::make_shared<BlockFiles>(*files));
  rb->statistics = CreateDBStatistics();
  rb->statistics->set_stats_level(StatsLevel::kExceptTimers);

  // One budget: memtables, indexes and filters are charged to the cache.
  auto cache = NewLRUCache(o->cache, 4, false, 0.5);
  BlockBasedTableOptions table;
  table.block_cache = cache;
  // A data block is one block of the drive.
  table.block_size = 4096;
  table.block_align = true;
  table.format_version = 5;
  table.filter_policy.reset(NewBloomFilterPolicy(10, false));
  table.cache_index_and_filter_blocks = true;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  table.metadata_cache_options.unpartitioned_pinning = PinningTier::kAll;

  Options options;
  options.env = rb->env.get();
  options.create_if_missing = true;
  options.compression = kNoCompression;
  options.table_factory.reset(NewBlockBasedTableFactory(table));
  options.write_buffer_manager = std::make_shared<WriteBufferManager>(o->memtables, cache);
  options.write_buffer_size = o->memtables / 2;
  options.max_write_buffer_number = 2;
  options.max_background_jobs = o->background_jobs;
  options.compaction_readahead_size = 1 << 20;
  options.max_open_files = -1;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.statistics = rb->statistics;
  rb->write.sync = o->sync != 0;

  DB* db = nullptr;
  if (fail(DB::Open(options, "/db", &db), error, room) != RB_OK) return nullptr;
  rb->db.reset(db);
  return rb.release();
}

int rb_close(Rb* rb, char* error, size_t room) {
  int code = fail(rb->db->Close(), error, room);
  delete rb->db.release();
  delete rb;
  return code;
}

int rb_put(Rb* rb, const char* key, size_t key_len, const char* value, size_t len, char* error,
           size_t room) {
  return fail(rb->db->Put(rb->write, Slice(key, key_len), Slice(value, len)), error, room);
}

int rb_delete(Rb* rb, const char* key, size_t key_len, char* error, size_t room) {
  return fail(rb->db->Delete(rb->write, Slice(key, key_len)), error, room);
}

RbReader* rb_reader() { return new RbReader; }

void rb_reader_drop(RbReader* reader) { delete reader; }

int rb_get(Rb* rb, RbReader* reader, const char* key, size_t key_len, const char** value,
           size_t* len, char* error, size_t room) {
  reader->value.Reset();
  Status s = rb->db->Get(rb->read, rb->db->DefaultColumnFamily(), Slice(key, key_len),
                         &reader->value);
  if (s.IsNotFound()) return 0;
  if (!s.ok()) return fail(s, error, room);
  *value = reader->value.data();
  *len = reader->value.size();
  return 1;
}

int64_t rb_scan(Rb* rb, const char* key, size_t key_len, uint64_t count, void* to,
                void (*each)(void* to, const char* key, size_t key_len, const char* value,
                             size_t len),
                char* error, size_t room) {
  std::unique_ptr<Iterator> it(rb->db->NewIterator(rb->read));
  uint64_t n = 0;
  for (it->Seek(Slice(key, key_len)); n < count && it->Valid(); n++) {
    each(to, it->key().data(), it->key().size(), it->value().data(), it->value().size());
    // A step past the last would read for nothing.
    if (n + 1 < count) it->Next();
  }
  if (!it->status().ok()) return fail(it->status(), error, room);
  return static_cast<int64_t>(n);
}

int rb_settle(Rb* rb, char* error, size_t room) {
  Status s = rb->db->Flush(FlushOptions());
  while (s.ok()) {
    uint64_t pending = 0, running = 0, flushing = 0;
    rb->db->GetIntProperty("rocksdb.compaction-pending", &pending);
    rb->db->GetIntProperty("rocksdb.num-running-compactions", &running);
    rb->db->GetIntProperty("rocksdb.num-running-flushes", &flushing);
    if (pending + running + flushing == 0) break;
    rb->env->SleepForMicroseconds(1000);
  }
  return fail(s, error, room);
}

void rb_counters(Rb* rb, RbCounters* to) {
  auto& s = *rb->statistics;
  to->block_hits = s.getTickerCount(BLOCK_CACHE_DATA_HIT);
  to->block_misses = s.getTickerCount(BLOCK_CACHE_DATA_MISS);
  to->stalls_us = s.getTickerCount(STALL_MICROS);
  to->wal_bytes = s.getTickerCount(WAL_FILE_BYTES);
  to->flush_bytes = s.getTickerCount(FLUSH_WRITE_BYTES);
  to->compaction_read = s.getTickerCount(COMPACT_READ_BYTES);
  to->compaction_written = s.getTickerCount(COMPACT_WRITE_BYTES);
}
