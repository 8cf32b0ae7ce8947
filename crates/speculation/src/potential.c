/* A tool for valgrind that counts how far a program could go on by speculation: the instructions
 * between a read or write of a file, or a wait for its durability, and the point where it must
 * stop (Wei, Bjorling, Bonnet and Swanson, USENIX ATC 2014, section 3). It stops at a system call
 * with a side effect, at a store to memory that is shared with other processes, and after a read
 * at the first load from what was read. What the dynamic linker does before the program begins, at
 * its entry, is told apart.
 *
 * At the end, and before a program gives way to another, it adds to the file of --to a line for
 * each call and reason: format, process, whose it is (linker or program), call, reason, how many,
 * sum, sum of squares, longest, and how many there are of 2^n to 2^(n+1) - 1 instructions each; and
 * a last line: format, process, instructions, those of the linker, what was left out for want of
 * room, program.
 */
#include "pub_tool_basics.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_options.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#define THREADS 512
/* Pieces of one read that are looked at, and shared mappings. What is past these is left out, and
 * told. */
#define PIECES 16
#define SHARED 256
#define CELLS 512
#define CLASSES 48

/* What stops a thread beside a call, whose number it is else. */
#define BY_BUFFER 100000
#define BY_SHARED 100001

typedef struct { Addr lo, hi; } Range;

/* Since an I/O a thread goes on by speculation, or has stopped. */
typedef struct {
   Bool is_open, is_linker;
   UInt call;
   ULong since;
} Window;

/* A read may be under way while a write is. */
enum { OF_WRITE, OF_READ };

typedef struct {
   Window window[2];
   UInt pieces;
   Range piece[PIECES];
   /* Instructions so far, when it last ran. */
   ULong done;
} Thread;

typedef struct {
   Bool is_linker;
   UInt call, reason;
   ULong count, sum, longest;
   Double squares;
   UInt classes[CLASSES];
} Cell;

static Thread threads[THREADS];
static Cell cells[CELLS];
static UInt used, left_out;
static Range shared[SHARED];
static UInt shareds;
/* Instructions of all threads; those at which the one that runs began; and those that were told. */
static ULong count, base, told;
static ThreadId current;
/* Windows that are open, and of these the ones after a read; whose these are. */
static UWord open, reading;
static ThreadId readers[THREADS];
/* Where the program begins, as the kernel tells the dynamic linker; whether it has, and how many
 * instructions came before, until they are told. The core's, which no header for tools has. */
extern UWord* VG_(client_auxv);
#define ENTRY_IN_AUXV 9
static Addr entry;
static Bool is_entered;
static ULong linker_count;

static ULong now(ThreadId tid)
{
   return threads[tid].done + (tid == current ? count - base : 0);
}

static Cell* cell(Bool is_linker, UInt call, UInt reason)
{
   for (UInt n = 0; n < used; n++)
      if (cells[n].call == call && cells[n].reason == reason && cells[n].is_linker == is_linker)
         return &cells[n];
   if (used == CELLS) { left_out++; return NULL; }
   cells[used].is_linker = is_linker;
   cells[used].call = call;
   cells[used].reason = reason;
   return &cells[used++];
}

static void stop(ThreadId tid, UInt which, UInt reason)
{
   Window* window = &threads[tid].window[which];
   if (!window->is_open) return;
   ULong took = now(tid) - window->since;
   Cell* of = cell(window->is_linker, window->call, reason);
   UInt class = 0;
   window->is_open = False;
   open--;
   if (which == OF_READ)
      for (UWord n = 0; n < reading; n++)
         if (readers[n] == tid) { readers[n] = readers[--reading]; break; }
   if (!of) return;
   of->count++;
   of->sum += took;
   of->squares += (Double)took * (Double)took;
   if (took > of->longest) of->longest = took;
   while ((took >>= 1) && class < CLASSES - 1) class++;
   of->classes[class]++;
}

static void stop_both(ThreadId tid, UInt reason)
{
   stop(tid, OF_WRITE, reason);
   stop(tid, OF_READ, reason);
}

static void begin(ThreadId tid, UInt which, UInt call)
{
   threads[tid].window[which] = (Window){ True, !is_entered, call, now(tid) };
   open++;
   if (which == OF_READ) readers[reading++] = tid;
}

/* The descriptor that a call is about; of those that have two, where the bytes go. */
static UWord about(UInt call, UWord* args)
{
   return call == __NR_copy_file_range || call == __NR_splice ? args[2] : args[0];
}

/* Whether a descriptor is of a file or a block device: what I/O is about. */
static Bool is_stored(UWord fd)
{
   struct vg_stat about;
   if (VG_(fstat)((Int)fd, &about) != 0) return False;
   UInt kind = about.mode & VKI_S_IFMT;
   return kind == VKI_S_IFREG || kind == VKI_S_IFBLK;
}

enum What { OTHER, READS, WRITES, WAITS, NOTHING };

/* What a call does. NOTHING: no side effect that anybody else could see. */
static enum What what(UInt call)
{
   switch (call) {
      case __NR_read: case __NR_pread64: case __NR_readv: case __NR_preadv: case __NR_preadv2:
         return READS;
      case __NR_write: case __NR_pwrite64: case __NR_writev: case __NR_pwritev: case __NR_pwritev2:
      case __NR_copy_file_range: case __NR_sendfile: case __NR_splice:
         return WRITES;
      case __NR_fsync: case __NR_fdatasync: case __NR_sync_file_range: case __NR_msync:
         return WAITS;
      case __NR_getpid: case __NR_gettid: case __NR_getppid: case __NR_getuid: case __NR_geteuid:
      case __NR_getgid: case __NR_getegid: case __NR_getpgid: case __NR_getsid:
      case __NR_clock_gettime: case __NR_gettimeofday: case __NR_clock_getres: case __NR_times:
      case __NR_getrusage: case __NR_uname: case __NR_getrandom: case __NR_getcwd:
      case __NR_getrlimit: case __NR_sched_yield: case __NR_sched_getaffinity: case __NR_getcpu:
      case __NR_fstat: case __NR_newfstatat: case __NR_statx: case __NR_faccessat:
      case __NR_readlinkat: case __NR_getdents64: case __NR_statfs: case __NR_fstatfs:
      case __NR_brk: case __NR_mmap: case __NR_munmap: case __NR_mprotect: case __NR_mremap:
      case __NR_madvise: case __NR_rt_sigaction: case __NR_rt_sigprocmask:
      case __NR_sigaltstack: case __NR_set_tid_address: case __NR_set_robust_list:
      case __NR_ppoll: case __NR_pselect6: case __NR_epoll_pwait:
#ifdef __NR_time
      case __NR_time: case __NR_stat: case __NR_lstat: case __NR_access: case __NR_readlink:
      case __NR_arch_prctl: case __NR_poll: case __NR_select: case __NR_epoll_wait:
      case __NR_getpgrp:
#endif
         return NOTHING;
      default:
         return OTHER;
   }
}

static void report(void);

static void before_call(ThreadId tid, UInt call, UWord* args, UInt count)
{
   enum What kind = what(call);
   if (kind == OTHER || kind == WRITES || kind == WAITS) stop_both(tid, call);
   if (call == __NR_execve || call == __NR_execveat) report();
}

static void keep_pieces(Thread* thread, UInt call, UWord* args, SizeT done)
{
   thread->pieces = 0;
   if (call == __NR_read || call == __NR_pread64) {
      thread->piece[thread->pieces++] = (Range){ args[1], args[1] + done };
      return;
   }
   struct vki_iovec* list = (struct vki_iovec*)args[1];
   for (UWord n = 0; n < args[2] && done > 0; n++) {
      SizeT len = list[n].iov_len < done ? list[n].iov_len : done;
      if (thread->pieces == PIECES) { left_out++; break; }
      thread->piece[thread->pieces++] = (Range){ (Addr)list[n].iov_base, (Addr)list[n].iov_base + len };
      done -= len;
   }
}

static void unshare(Addr lo, Addr hi)
{
   for (UInt n = 0; n < shareds; n++)
      if (shared[n].lo >= lo && shared[n].hi <= hi) shared[n--] = shared[--shareds];
}

static void share(Addr lo, SizeT len)
{
   if (shareds == SHARED) { left_out++; return; }
   shared[shareds++] = (Range){ lo, lo + len };
}

static void after_call(ThreadId tid, UInt call, UWord* args, UInt count, SysRes res)
{
   Thread* thread = &threads[tid];
   if (sr_isError(res)) return;
   if (call == __NR_mmap && (args[3] & VKI_MAP_SHARED) && (args[2] & VKI_PROT_WRITE))
      share(sr_Res(res), args[1]);
   if (call == __NR_shmat) {
      const NSegment* segment = VG_(am_find_nsegment)(sr_Res(res));
      if (segment) share(sr_Res(res), segment->end + 1 - sr_Res(res));
   }
   if (call == __NR_shmdt)
      for (UInt n = 0; n < shareds; n++)
         if (shared[n].lo == args[0]) { shared[n] = shared[--shareds]; break; }
   if (call == __NR_mremap)
      for (UInt n = 0; n < shareds; n++)
         if (shared[n].lo == args[0]) { shared[n] = (Range){ sr_Res(res), sr_Res(res) + args[2] }; break; }
   if (call == __NR_munmap) unshare(args[0], args[0] + args[1]);
   enum What kind = what(call);
   if (kind != READS && kind != WRITES && kind != WAITS) return;
   if (call != __NR_msync && !is_stored(about(call, args))) return;
   if (kind == READS) {
      /* The first one's buffer was not used until then. */
      stop(tid, OF_READ, call);
      if (sr_Res(res) == 0) return;
      keep_pieces(thread, call, args, sr_Res(res));
   }
   begin(tid, kind == READS ? OF_READ : OF_WRITE, call);
}

static VG_REGPARM(2) void loaded(Addr at, SizeT size)
{
   for (UWord r = 0; r < reading; r++) {
      Thread* thread = &threads[readers[r]];
      for (UInt n = 0; n < thread->pieces; n++)
         if (at < thread->piece[n].hi && at + size > thread->piece[n].lo) {
            stop(readers[r--], OF_READ, BY_BUFFER);
            break;
         }
   }
}

static VG_REGPARM(2) void stored(Addr at, SizeT size)
{
   for (UInt n = 0; n < shareds; n++)
      if (at < shared[n].hi && at + size > shared[n].lo) {
         stop_both(current, BY_SHARED);
         return;
      }
}

static void entered(void)
{
   if (!is_entered) linker_count = count;
   is_entered = True;
}

static void runs(ThreadId tid, ULong blocks)
{
   if (tid == current) return;
   threads[current].done += count - base;
   base = count;
   current = tid;
}

static void thread_ends(ThreadId tid)
{
   stop_both(tid, __NR_exit);
   runs(0, 0);
   threads[tid].done = 0;
}

/* Count instructions: added up where somebody may look. */
static void add(IRSB* out, UInt* pending)
{
   IREndness end = Iend_LE;
   if (*pending == 0) return;
   IRTemp before = newIRTemp(out->tyenv, Ity_I64), after = newIRTemp(out->tyenv, Ity_I64);
   IRExpr* at = mkIRExpr_HWord((HWord)&count);
   addStmtToIRSB(out, IRStmt_WrTmp(before, IRExpr_Load(end, Ity_I64, at)));
   addStmtToIRSB(out, IRStmt_WrTmp(after, IRExpr_Binop(Iop_Add64, IRExpr_RdTmp(before),
      IRExpr_Const(IRConst_U64(*pending)))));
   addStmtToIRSB(out, IRStmt_Store(end, at, IRExpr_RdTmp(after)));
   *pending = 0;
}

/* Calls a helper where `flag` is not zero. */
static void look(IRSB* out, void* helper, const HChar* name, UWord* flag, IRExpr* at, SizeT size)
{
   IRDirty* call = unsafeIRDirty_0_N(2, name, VG_(fnptr_to_fnentry)(helper),
                                     mkIRExprVec_2(at, mkIRExpr_HWord(size)));
   IRTemp word = newIRTemp(out->tyenv, Ity_I64), is = newIRTemp(out->tyenv, Ity_I1);
   addStmtToIRSB(out, IRStmt_WrTmp(word, IRExpr_Load(Iend_LE, Ity_I64, mkIRExpr_HWord((HWord)flag))));
   addStmtToIRSB(out, IRStmt_WrTmp(is, IRExpr_Binop(Iop_CmpNE64, IRExpr_RdTmp(word),
      IRExpr_Const(IRConst_U64(0)))));
   call->guard = IRExpr_RdTmp(is);
   addStmtToIRSB(out, IRStmt_Dirty(call));
}

static void load(IRSB* out, UInt* pending, IRExpr* at, SizeT size)
{
   add(out, pending);
   look(out, &loaded, "loaded", &reading, at, size);
}

static void store(IRSB* out, UInt* pending, IRExpr* at, SizeT size)
{
   add(out, pending);
   look(out, &stored, "stored", &open, at, size);
}

static IRSB* instrument(VgCallbackClosure* closure, IRSB* in, const VexGuestLayout* layout,
                        const VexGuestExtents* extents, const VexArchInfo* info, IRType guest,
                        IRType host)
{
   IRSB* out = deepCopyIRSBExceptStmts(in);
   UInt pending = 0;
   for (Int n = 0; n < in->stmts_used; n++) {
      IRStmt* s = in->stmts[n];
      if (!s) continue;
      switch (s->tag) {
         case Ist_IMark:
            if (!is_entered && s->Ist.IMark.addr == entry) {
               add(out, &pending);
               addStmtToIRSB(out, IRStmt_Dirty(unsafeIRDirty_0_N(0, "entered",
                  VG_(fnptr_to_fnentry)(&entered), mkIRExprVec_0())));
            }
            pending++;
            break;
         case Ist_Exit:
            add(out, &pending);
            break;
         case Ist_WrTmp:
            if (s->Ist.WrTmp.data->tag == Iex_Load)
               load(out, &pending, s->Ist.WrTmp.data->Iex.Load.addr,
                    sizeofIRType(s->Ist.WrTmp.data->Iex.Load.ty));
            break;
         case Ist_LoadG:
            load(out, &pending, s->Ist.LoadG.details->addr,
                 sizeofIRType(typeOfIRExpr(in->tyenv, s->Ist.LoadG.details->alt)));
            break;
         case Ist_Store:
            store(out, &pending, s->Ist.Store.addr,
                  sizeofIRType(typeOfIRExpr(in->tyenv, s->Ist.Store.data)));
            break;
         case Ist_StoreG:
            store(out, &pending, s->Ist.StoreG.details->addr,
                  sizeofIRType(typeOfIRExpr(in->tyenv, s->Ist.StoreG.details->data)));
            break;
         case Ist_Dirty: {
            IRDirty* d = s->Ist.Dirty.details;
            if (d->mFx == Ifx_Read || d->mFx == Ifx_Modify) load(out, &pending, d->mAddr, d->mSize);
            if (d->mFx == Ifx_Write || d->mFx == Ifx_Modify) store(out, &pending, d->mAddr, d->mSize);
            break;
         }
         case Ist_CAS: {
            IRCAS* cas = s->Ist.CAS.details;
            SizeT size = sizeofIRType(typeOfIRExpr(in->tyenv, cas->dataLo));
            if (cas->dataHi) size *= 2;
            load(out, &pending, cas->addr, size);
            store(out, &pending, cas->addr, size);
            break;
         }
         case Ist_LLSC:
            if (s->Ist.LLSC.storedata)
               store(out, &pending, s->Ist.LLSC.addr,
                     sizeofIRType(typeOfIRExpr(in->tyenv, s->Ist.LLSC.storedata)));
            else
               load(out, &pending, s->Ist.LLSC.addr,
                    sizeofIRType(typeOfIRTemp(in->tyenv, s->Ist.LLSC.result)));
            break;
         default:
            break;
      }
      addStmtToIRSB(out, s);
   }
   add(out, &pending);
   return out;
}

/* The file that reports are added to. */
static const HChar* to;
static HChar text[1 << 19];
static SizeT length;

/* What has no room is left out. */
#define SAY(...) (length += VG_(snprintf)(text + length, sizeof text - length, __VA_ARGS__), \
                  length = length < sizeof text ? length : sizeof text - 1)

static void report(void)
{
   length = 0;
   for (UInt n = 0; n < used; n++) {
      Cell* of = &cells[n];
      SAY("potential 2 %d %s %u ", VG_(getpid)(), of->is_linker ? "linker" : "program", of->call);
      if (of->reason == BY_BUFFER) SAY("buffer");
      else if (of->reason == BY_SHARED) SAY("shared");
      else SAY("%u", of->reason);
      SAY(" %llu %llu %.0f %llu", of->count, of->sum, of->squares, of->longest);
      for (UInt c = 0; c < CLASSES; c++) SAY(" %u", of->classes[c]);
      SAY("\n");
   }
   /* Who ends before the program begins was the linker. */
   if (!is_entered) linker_count = count - told;
   SAY("potential-end 2 %d %llu %llu %u %s\n", VG_(getpid)(), count - told, linker_count, left_out,
       VG_(args_the_exename));
   Int fd = to ? VG_(fd_open)(to, VKI_O_WRONLY | VKI_O_CREAT | VKI_O_APPEND, 0600) : -1;
   if (fd < 0 || VG_(write)(fd, text, length) != (Int)length)
      VG_(umsg)("potential: cannot write to %s\n", to ? to : "(no --to=FILE)");
   if (fd >= 0) VG_(close)(fd);
   told = count;
   used = left_out = 0;
   linker_count = 0;
   VG_(memset)(cells, 0, sizeof cells);
}

static void at_end(Int code)
{
   for (UInt tid = 0; tid < THREADS; tid++) stop_both(tid, __NR_exit_group);
   report();
}

/* A child has what its parent counted, which that tells itself. */
static void forked(ThreadId tid)
{
   used = left_out = 0;
   VG_(memset)(cells, 0, sizeof cells);
   threads[current].done += count - base;
   count = base = told = linker_count = 0;
   for (UInt n = 0; n < THREADS; n++)
      threads[n].window[OF_WRITE].is_open = threads[n].window[OF_READ].is_open = False;
   open = reading = 0;
}

static Bool option(const HChar* arg)
{
   return VG_STR_CLO(arg, "--to", to);
}

static void usage(void)
{
   VG_(printf)("    --to=FILE    the file that reports are added to\n");
}

static void no_debug_usage(void) { }

static void at_start(void)
{
   for (UWord* pair = VG_(client_auxv); pair && pair[0] != 0; pair += 2)
      if (pair[0] == ENTRY_IN_AUXV) entry = pair[1];
}

static void init(void)
{
   VG_(details_name)("potential");
   VG_(details_version)("1");
   VG_(details_description)("how far a program could speculate");
   VG_(details_copyright_author)("ssdkit");
   VG_(details_bug_reports_to)("ssdkit");
   VG_(basic_tool_funcs)(at_start, instrument, at_end);
   VG_(needs_command_line_options)(option, usage, no_debug_usage);
   VG_(needs_syscall_wrapper)(before_call, after_call);
   VG_(track_start_client_code)(runs);
   VG_(track_pre_thread_ll_exit)(thread_ends);
   VG_(atfork)(NULL, NULL, forked);
}

VG_DETERMINE_INTERFACE_VERSION(init)
