package pack

import (
	"io"
	"os"

	"github.com/holdfast-run/holdfast/internal/durable"
)

// Disk makes all changes of the directory of packs. Tests use another Disk, which lets a single step fail, or simulates
// the end of the process or a power cut.
type Disk interface {
	// Create makes a new file for writing; it fails if the name exists.
	Create(path string) (DiskFile, error)
	// Overwrite opens an existing file for writing over its content, from its beginning.
	Overwrite(path string) (DiskFile, error)
	// Link gives a file a second name; it fails if the name exists.
	Link(from, to string) error
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
}

// DiskFile is a file that is open for writing.
type DiskFile interface {
	io.Writer
	// Sync makes the content durable.
	Sync() error
	Close() error
}

// OSDisk is the Disk that uses the operating system.
type OSDisk struct{}

// Create implements Disk.
func (OSDisk) Create(path string) (DiskFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Overwrite implements Disk.
func (OSDisk) Overwrite(path string) (DiskFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	return written{f}, err
}

// Link implements Disk.
func (OSDisk) Link(from, to string) error { return os.Link(from, to) }

// Rename implements Disk.
func (OSDisk) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements Disk.
func (OSDisk) Remove(path string) error { return os.Remove(path) }

// SyncDir implements Disk.
func (OSDisk) SyncDir(dir string) error { return durable.SyncDir(dir) }
