package holdfast

// NoticeFilesAtRisk is the code of the notice that a power cut may have destroyed files
// that commands had written. A session gets it once for each power cut.
const NoticeFilesAtRisk = "files.at_risk"

// NoticeFilesCompared is the code of the notice that says, after a power cut or if all files were gone, which
// files came back from the newest checkpoint and which may be older than the log.
const NoticeFilesCompared = "files.compared"

// The codes of notices about a session that works in a directory of the user's own, in this order: others changed files
// between two turns; checkpoints are off; checkpoints are on again; a rewind did not touch files that others changed.
const (
	NoticeFilesFound     = "files.found"
	NoticeCheckpointsOff = "checkpoints.off"
	NoticeCheckpointsOn  = "checkpoints.on"
	NoticeRewindLeft     = "rewind.left"
)

// OtherFiles reports whether a notice tells that files may not be what the log says.
func (n Notice) OtherFiles() bool {
	return n.Code == NoticeFilesAtRisk || n.Code == NoticeFilesCompared || n.Code == NoticeFilesFound
}
