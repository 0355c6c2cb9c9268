//go:build !linux

package rooted

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// Trees are stored and restored on Linux only.
var errUnsupported = errors.ErrUnsupported

func (*walker) handle(e Entry) (Handle, Entry, error)      { return Handle{}, e, errUnsupported }
func (*walker) readlink(Entry) (string, error)             { return "", errUnsupported }
func (*walker) privileged(Entry) (bool, error)             { return false, errUnsupported }
func (*walker) all(context.Context, func(Entry) bool) bool { return false }
func touch(string) (time.Time, error)                      { return time.Time{}, errUnsupported }
func openTree(string) (Dir, error)                         { return Dir{}, errUnsupported }
func makeTree(string) (Dir, error)                         { return Dir{}, errUnsupported }

// Close does nothing: no handle exists on this system. The other methods return an error.
func (Handle) Close() {}

// Stat is not supported on this system.
func (Handle) Stat() (Entry, error) { return Entry{}, errUnsupported }

// ReadAt is not supported on this system.
func (Handle) ReadAt([]byte, int64) (int, error) { return 0, errUnsupported }

// NextHole is not supported on this system.
func (Handle) NextHole(int64) (int64, error) { return 0, errUnsupported }

// NextData is not supported on this system.
func (Handle) NextData(int64) (int64, error) { return 0, errUnsupported }

// WriteBack is not supported on this system.
func (Handle) WriteBack() error { return errUnsupported }

// Xattrs is not supported on this system.
func (Handle) Xattrs() ([]Xattr, error) { return nil, errUnsupported }

// WriteAt is not supported on this system.
func (Handle) WriteAt([]byte, int64) (int, error) { return 0, errUnsupported }

// Truncate is not supported on this system.
func (Handle) Truncate(int64) error { return errUnsupported }

// Set is not supported on this system.
func (Handle) Set(Attr, bool) error { return errUnsupported }

// Open is not supported on this system.
func (Dir) Open(string) (Dir, error) { return Dir{}, errUnsupported }

// Below is not supported on this system.
func (Dir) Below(string) (Dir, error) { return Dir{}, errUnsupported }

// Mkdir is not supported on this system.
func (Dir) Mkdir(string) (Dir, error) { return Dir{}, errUnsupported }

// Create is not supported on this system.
func (Dir) Create(string) (Handle, error) { return Handle{}, errUnsupported }

// Symlink is not supported on this system.
func (Dir) Symlink(string, string, Attr) error { return errUnsupported }

// Link is not supported on this system.
func (Dir) Link(Dir, string, string) error { return errUnsupported }

// Remove is not supported on this system.
func (Dir) Remove(string) error { return errUnsupported }

// Find is not supported on this system.
func (Dir) Find(string) (Handle, error) { return Handle{}, errUnsupported }

// Readlink is not supported on this system.
func (Dir) Readlink(string) (string, error) { return "", errUnsupported }

// Lstat is not supported on this system.
func (Dir) Lstat(string) (Entry, error) { return Entry{}, errUnsupported }

// Entry is not supported on this system.
func (Dir) Entry(string) (Entry, error) { return Entry{}, errUnsupported }

// Chmod is not supported on this system.
func (Dir) Chmod(fs.FileMode) error { return errUnsupported }

// Unlink is not supported on this system.
func Unlink(Dir, string) error { return errUnsupported }

// Rmdir is not supported on this system.
func Rmdir(Dir, string) (bool, error) { return false, errUnsupported }

// Move is not supported on this system.
func Move(Dir, string, Dir, string) error { return errUnsupported }

// Add is not supported on this system.
func Add(Dir, string, Dir, string) error { return errUnsupported }

// Exchange is not supported on this system.
func Exchange(Dir, string, Dir, string) error { return errUnsupported }

// OpenFile is not supported on this system.
func OpenFile(Dir, string) (Handle, Entry, error) { return Handle{}, Entry{}, errUnsupported }

// Names is not supported on this system.
func Names(Dir, string, int) ([]string, error) { return nil, errUnsupported }
