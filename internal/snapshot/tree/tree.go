package tree

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
)

// Source reads blobs. It is safe for concurrent use.
type Source interface {
	// Get returns the blob with an id, after it has checked that the bytes match the id; not_found if the source does not
	// have the blob. The caller may keep the bytes and must not change them.
	Get(ctx context.Context, id pack.ID) ([]byte, error)
}

// Sink stores blobs. One goroutine uses it at a time.
type Sink interface {
	// Put stores a blob of at most 1 MiB, unless it is stored already, and returns its id. Put does not keep data.
	Put(kind pack.Kind, data []byte) (pack.ID, error)
	// ID returns the id that Put gives a blob, and stores nothing.
	ID(kind pack.Kind, data []byte) pack.ID
}

// Type is the type of an entry.
type Type uint8

// The types of entries. Sockets, FIFOs and devices are not stored.
const (
	File    Type = 1
	Dir     Type = 2
	Symlink Type = 3
)

// Owner says whose a file is by role (agent, boxd or other), not by a user id of the host.
type Owner uint8

// The owners of files.
const (
	OwnerAgent Owner = 0 // the user that tools run as
	OwnerBoxd  Owner = 1 // the user that boxd runs as
	OwnerOther Owner = 2 // somebody else; a restore gives the file to the agent
)

// User is a user and a group of the host.
type User struct{ UID, GID int }

// Owners are the users of the host for two roles, which may be the same user.
type Owners struct{ Agent, Boxd User }

// Entry is a file, a directory or a symlink of a stored tree.
type Entry struct {
	// Name is the last element of the path; empty for the top.
	Name string
	Type Type
	// Mode holds the nine permission bits, and set-uid 04000, set-gid 02000 and sticky 01000.
	Mode  uint16
	Owner Owner
	// Mtime is in nanoseconds since 1970.
	Mtime int64
	// Size is the length of a file in bytes. Target is the target of a symlink.
	Size   int64
	Target string
	// Link is empty, or the path of another name of the same file that comes earlier in the walk: both are hard links. The
	// other fields then equal those of the entry at that path.
	Link string
	// Xattrs are the extended attributes in the namespace user, sorted by name.
	Xattrs []rooted.Xattr

	content ref
}

// SameContent reports whether two files have the same bytes.
func (e Entry) SameContent(o Entry) bool { return e.content == o.content && e.Size == o.Size }

// Config says which tree a scan reads, and how.
type Config struct {
	// Dir is the tree. State is a private directory on the same file system, which the scan makes if it does not exist. It
	// keeps the stat cache there, and a file that it touches to read the file system's clock.
	Dir, State string
	// Sink gets the blobs.
	Sink Sink
	// Source reads the blobs of Last: with it small changes of large files cost less. It may be nil if Ignore is nil.
	Source Source
	// Last is the root of the newest stored tree, whose blobs Sink knows. The stat cache is used only if it belongs to
	// that root. With the zero ID the scan reads every file: a caller must ask for that after the machine lost power.
	Last pack.ID
	// Memo is what the last scan of the tree, or a look after it, remembered; nil if nothing was kept. A scan reads some
	// unchanged files again (statcache.Rehash); with a Memo it continues after the part that the last look took.
	Memo *statcache.Memo
	// Owners are the users of the box.
	Owners Owners
	// Processes says that processes with access to the tree may be alive. The pages of a file are then
	// written back before it is read, so that later stores through mappings change its ctime.
	Processes bool
	// Bounds limit the walk; Depth is lowered to MaxDepth.
	Bounds rooted.Bounds
	// Exclude reports whether a path is left out, with everything below it. Ignore does the same for paths that Last does
	// not have. Either may be nil.
	Exclude, Ignore func(path string, dir bool) bool
	// Admit is called for each entry that is not left out, in the order of a walk, before it is read. Its error ends the
	// scan. It may be nil.
	Admit func(e rooted.Entry) error
	// Reads is called before each file that is read; long says that the scan reads more than a few small ones. May be nil.
	Reads func(long bool)
	// Now returns the time of day.
	Now func() time.Time
}

// MaxDepth is how many levels deep a stored tree is at most.
const MaxDepth = 500

// Skip is a path that a scan could not store, or could not store completely, and the reason.
type Skip struct{ Path, Why string }

// Result is the outcome of a scan.
type Result struct {
	// Root is the id of the tree; Same reports that it equals Config.Last.
	Root pack.ID
	Same bool
	// Files, Dirs and Links count the stored entries, with the top; Bytes is the sum of the sizes of files.
	Files, Dirs, Links int
	Bytes              int64
	// Changed counts the entries that were added, changed or removed since Last.
	Changed int
	// Hashed counts the files that were read (one that both passes read, twice), HashedBytes their bytes without holes.
	Hashed      int
	HashedBytes int64
	// Skipped are the paths that are not stored, in any order, at most 1,000 of them; SkippedCount counts all.
	Skipped      []Skip
	SkippedCount int
	// Fuzzy are the files that changed while they were read: what is stored may never have been their content. At most
	// 1,000 are listed; FuzzyCount counts all.
	Fuzzy      []string
	FuzzyCount int
	// If the context of Still ended early, Unchecked is the path, in the order of a walk, from which on Still did not look
	// for changes. Else it is empty.
	Unchecked string
	// Mismatches are the files whose content differs from that of the last scan, although their stat does not. Their
	// present content is stored.
	Mismatches []string

	save func() error
}

// Save writes the stat cache for the next scan. The caller calls it when the blobs and Root are durable, before it
// closes the scan. Without Save the next scan finds a cache that does not belong to Config.Last, and reads every file.
func (r Result) Save() error {
	if r.save == nil {
		return nil
	}
	return r.save()
}
