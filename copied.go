package holdfast

// Copied says what a copy of a file or a directory took along, and what it left out.
type Copied struct {
	Files int64 `json:"files"`
	Dirs  int64 `json:"dirs"`
	// Links counts symbolic links, and further names of a file.
	Links int64 `json:"links"`
	// LinksOut counts the symbolic links that lead out of what was copied.
	LinksOut int64 `json:"links_out,omitempty"`
	// Bytes is the content of the files.
	Bytes int64 `json:"bytes"`
	// Skipped names the first entries that are never copied, as "PATH: REASON": sockets,
	// named pipes, devices. SkippedMore counts the others.
	Skipped     []string `json:"skipped,omitempty"`
	SkippedMore int64    `json:"skipped_more,omitempty"`
	// Incomplete names the first entries that are missing or torn: they could not be read,
	// or changed while they were read.
	Incomplete     []string `json:"incomplete,omitempty"`
	IncompleteMore int64    `json:"incomplete_more,omitempty"`
}

// Source is where the first files of a session come from.
type Source struct {
	// From names the place for people, and for a command that goes on with an import.
	From string `json:"from"`
	// Complete: all files are there. Until then the session takes no message.
	Complete bool `json:"complete"`
	// Start is the git commit that holds the files as they were when the session started;
	// empty where they are no git tree.
	Start string `json:"start,omitempty"`
}

// CopyTo says what an archive becomes in a session's files.
type CopyTo struct {
	// Path is the directory that the archive becomes, or with File the file; empty is the
	// workspace. If Path is a directory and Name is not empty, it becomes the entry Name of
	// it. A directory that exists is merged with.
	Path, Name string
	// Into: Path is a directory, and is made if it does not exist.
	Into bool
	// File: the archive is one file or link.
	File bool
}

// DiffFormat is the format of a diff.
type DiffFormat string

// The formats: a patch for git apply, a line for each file with the lines that changed, and
// the names of the files alone.
const (
	DiffPatch DiffFormat = "patch"
	DiffStat  DiffFormat = "stat"
	DiffNames DiffFormat = "names"
)

// Imported is the answer of an import.
type Imported struct {
	Session Session `json:"session"`
	Copied  Copied  `json:"copied"`
	// NoStart says why there is no commit of the start; empty if there is one.
	NoStart string `json:"no_start,omitempty"`
}

// FilesImported is the payload of files.imported.
type FilesImported struct {
	From  string `json:"from"`
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
	Start string `json:"start,omitempty"`
}
