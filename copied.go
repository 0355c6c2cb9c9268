package holdfast

// Copied reports what a copy of a file or directory included, and what it left out.
type Copied struct {
	Files int64 `json:"files"`
	Dirs  int64 `json:"dirs"`
	// Links counts the copied symbolic links, and each name of a copied file after its first (hard links).
	Links int64 `json:"links"`
	// LinksOut counts the symbolic links whose target is outside of the copied tree.
	LinksOut int64 `json:"links_out,omitempty"`
	// Bytes is the total size of the files' content.
	Bytes int64 `json:"bytes"`
	// Skipped lists the first entries of a kind that is never copied (sockets, named pipes,
	// devices), as "PATH: REASON". SkippedMore counts the rest of them.
	Skipped     []string `json:"skipped,omitempty"`
	SkippedMore int64    `json:"skipped_more,omitempty"`
	// Incomplete lists the first entries that are missing from the copy or wrong in it,
	// because they could not be read or changed while they were read. IncompleteMore
	// counts the rest of them.
	Incomplete     []string `json:"incomplete,omitempty"`
	IncompleteMore int64    `json:"incomplete_more,omitempty"`
}

// Source describes where the first files of a session come from.
type Source struct {
	// From names the directory or repository that the files come from. It is for people to read, and
	// for the command that continues an interrupted import.
	From string `json:"from"`
	// Complete is true once all files are imported. Until then the session accepts no
	// message.
	Complete bool `json:"complete"`
	// Start is the git commit that holds the files as they were when the session started;
	// empty if the files are not a git working tree.
	Start string `json:"start,omitempty"`
}

// CopyTo says where in a session's files an archive is unpacked.
type CopyTo struct {
	// Path is the directory that the archive's content goes to, or with File the file that
	// it becomes; empty means the workspace. If Path is an existing directory and Name is
	// not empty, the content becomes Path/Name instead. The archive is merged into a
	// directory that exists.
	Path, Name string
	// Into is true if Path must be a directory, which is created if it does not exist.
	Into bool
	// File is true if the archive holds a single file or symbolic link.
	File bool
}

// DiffFormat is the format of a diff.
type DiffFormat string

// The formats: a patch for git apply; one line for each file with its number of changed
// lines; the names of the changed files only.
const (
	DiffPatch DiffFormat = "patch"
	DiffStat  DiffFormat = "stat"
	DiffNames DiffFormat = "names"
)

// Imported is the answer of an import.
type Imported struct {
	Session Session `json:"session"`
	Copied  Copied  `json:"copied"`
	// NoStart says why no git commit of the imported files was made; empty if one was
	// (Source.Start names it).
	NoStart string `json:"no_start,omitempty"`
}

// FilesImported is the payload of files.imported.
type FilesImported struct {
	From  string `json:"from"`
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
	Start string `json:"start,omitempty"`
}
