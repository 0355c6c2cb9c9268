// Package backup writes everything that a server has stored into one archive, and puts such an archive
// back into a new data directory.
//
// The app writes and restores archives; the CLI adds the encrypted keys and checks what it saves. It imports durable,
// rooted and the vocabulary. Invariant (I-45): what an archive restores is, byte for byte, one state that the server
// had while the archive was written; an archive that was cut or changed is refused, and leaves nothing.
//
// docs/format/backup.md describes the archive.
package backup

import (
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Names of the archive's own entries. The entries for the server's files have the names that the files have in the
// data directory.
const (
	headName = "backup.json"
	endName  = "manifest.json"
	keysName = "keys.age"
)

// version is the version of the format that this program writes, and the only one that it reads.
const version = 1

// Names of files in a data directory that an archive holds.
const (
	databaseName = "holdfast.db"
	snapshotKey  = "snapshots.key"
	snapshotDir  = "snapshots"
	agentDir     = "agents"
)

// packSuffix is the end of the names of packs. While a pack may be unfinished, there is a file named after it, with
// markPrefix and markSuffix (docs/format/pack.md).
const (
	packSuffix = ".pack"
	markPrefix = "."
	markSuffix = ".tmp"
)

// Beginnings of the names of directories of agents that an archive leaves out: of a deployment that is not complete, and
// of a plugin, which the server makes again from the files of its agent.
const (
	newPrefix    = ".new-"
	pluginPrefix = "plugin-"
)

// leftOut reports whether an archive leaves out a file or directory because it is one of the directories of agents
// with newPrefix or pluginPrefix, or lies in one.
func leftOut(name string) bool {
	in, ok := strings.CutPrefix(name, agentDir+"/")
	return ok && (strings.HasPrefix(in, newPrefix) || strings.HasPrefix(in, pluginPrefix))
}

// Head is the first entry that a server writes to an archive. Only the encrypted keys can be before it.
type Head struct {
	Version   int       `json:"version"`
	Release   string    `json:"release"`
	CreatedAt time.Time `json:"created_at"`
}

// Manifest is the last entry. It lists the entries between the head and itself, in order.
type Manifest struct {
	Files []File `json:"files"`
	// Behind are the sessions whose files may be newer than the copy in the archive: a turn was running, or no snapshot
	// could be taken.
	Behind []holdfast.SessionID `json:"behind,omitempty"`
}

// File is an entry of an archive.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// SHA256 is the hash of the content, in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// Summary describes an archive that was read to its end.
type Summary struct {
	Head
	Manifest
	// Bytes is the size of all files, unpacked.
	Bytes int64
	// Keys is true if the archive holds encrypted keys.
	Keys bool
}
