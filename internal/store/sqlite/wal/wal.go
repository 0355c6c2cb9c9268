package wal

import (
	"errors"
	"sync"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// Name is the name of the file system, for the parameter vfs of a data source name.
const Name = "holdfast-wal"

// gatherBytes is the most bytes of a log that are gathered before they are written. SQLite's file system uses
// it as a mask for the size of a write, so a larger transaction takes several calls.
const gatherBytes = 128<<10 - 1

// The types of the C functions that this package calls and replaces. Each function returns a result code of SQLite.
type (
	openFunc   = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	closeFunc  = func(tls *libc.TLS, file uintptr) int32
	rwFunc     = func(tls *libc.TLS, file, buf uintptr, n int32, offset int64) int32
	resizeFunc = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFunc   = func(tls *libc.TLS, file uintptr, flags int32) int32
	sizeFunc   = func(tls *libc.TLS, file, size uintptr) int32
)

// Register makes the file system known to SQLite. It does so once in a process.
func Register() error { return register() }

var register = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	p := lib.Xsqlite3_vfs_find(tls, 0)
	if p == 0 {
		return errors.New("SQLite has no default file system (VFS)")
	}
	name, err := libc.CString(Name)
	if err != nil {
		return err
	}
	standard = at[lib.Tsqlite3_vfs](p)
	ours = *standard
	ours.FpNext, ours.FzName, ours.FxOpen = 0, name, pointer(openFunc(open))
	if rc := lib.Xsqlite3_vfs_register(tls, address(&ours), 0); rc != lib.SQLITE_OK {
		return errors.New("SQLite did not register the file system (VFS) " + Name)
	}
	return nil
})

// standard is SQLite's own file system, ours the one that this package registers.
var (
	standard *lib.Tsqlite3_vfs
	ours     lib.Tsqlite3_vfs
)

// log is an open write-ahead log. SQLite uses it from one thread at a time.
type log struct {
	// plain are the functions of the standard file system; methods are the functions that SQLite calls for
	// the file. Both are in C's memory.
	plain, methods *lib.Tsqlite3_io_methods
	// gathered are bytes that are not written yet, and offset is where in the file they belong.
	gathered []byte
	offset   int64
}

// logs has the open logs (*log), by the address of SQLite's file.
var logs sync.Map

// of returns the log that belongs to an open file of SQLite.
func of(file uintptr) *log {
	l, _ := logs.Load(file)
	return l.(*log)
}

func open(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32 {
	rc := function[openFunc](standard.FxOpen)(tls, vfs, name, file, flags, outFlags)
	if rc != lib.SQLITE_OK || flags&lib.SQLITE_OPEN_WAL == 0 {
		return rc
	}
	memory := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
	if memory == 0 {
		return lib.SQLITE_NOMEM
	}
	f := at[lib.Tsqlite3_file](file)
	l := &log{plain: at[lib.Tsqlite3_io_methods](f.FpMethods), methods: at[lib.Tsqlite3_io_methods](memory)}
	*l.methods = *l.plain
	l.methods.FxClose = pointer(closeFunc(closeLog))
	l.methods.FxRead = pointer(rwFunc(readLog))
	l.methods.FxWrite = pointer(rwFunc(writeLog))
	l.methods.FxTruncate = pointer(resizeFunc(truncateLog))
	l.methods.FxSync = pointer(syncFunc(syncLog))
	l.methods.FxFileSize = pointer(sizeFunc(sizeOfLog))
	logs.Store(file, l)
	f.FpMethods = memory
	return rc
}

func closeLog(tls *libc.TLS, file uintptr) int32 {
	l := of(file)
	wrote := l.write(tls, file)
	logs.Delete(file)
	defer libc.Xfree(tls, address(l.methods))
	if rc := function[closeFunc](l.plain.FxClose)(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return wrote
}

func readLog(tls *libc.TLS, file, buf uintptr, n int32, offset int64) int32 {
	l := of(file)
	if rc := l.write(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return function[rwFunc](l.plain.FxRead)(tls, file, buf, n, offset)
}

func writeLog(tls *libc.TLS, file, buf uintptr, n int32, offset int64) int32 {
	l := of(file)
	if offset != l.offset+int64(len(l.gathered)) || len(l.gathered)+int(n) > gatherBytes {
		if rc := l.write(tls, file); rc != lib.SQLITE_OK {
			return rc
		}
		l.offset = offset
	}
	l.gathered = append(l.gathered, bytesAt(buf, n)...)
	return lib.SQLITE_OK
}

func truncateLog(tls *libc.TLS, file uintptr, size int64) int32 {
	l := of(file)
	if rc := l.write(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return function[resizeFunc](l.plain.FxTruncate)(tls, file, size)
}

func syncLog(tls *libc.TLS, file uintptr, flags int32) int32 {
	l := of(file)
	if rc := l.write(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return function[syncFunc](l.plain.FxSync)(tls, file, flags)
}

func sizeOfLog(tls *libc.TLS, file, size uintptr) int32 {
	l := of(file)
	if rc := l.write(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return function[sizeFunc](l.plain.FxFileSize)(tls, file, size)
}

// write writes the gathered bytes to the file. If that fails, the bytes are dropped: the call of SQLite that made
// them be written returns the error, and SQLite rolls the transaction back.
func (l *log) write(tls *libc.TLS, file uintptr) int32 {
	b := l.gathered
	if len(b) == 0 {
		return lib.SQLITE_OK
	}
	l.gathered = b[:0]
	return function[rwFunc](l.plain.FxWrite)(tls, file, address(&b[0]), int32(len(b)), l.offset)
}
