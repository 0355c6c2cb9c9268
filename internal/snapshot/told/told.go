// Package told has texts of package snapshot for people: notices of what others changed, what a power cut took and what
// a rewind left, errors of rewinds and restores, and the notes of a diff.
//
// It imports the vocabulary and gitpatch. Invariant: a list in a text names at most 20 paths, each quoted, and the number of
// the others.
package told

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/gitpatch"
)

// mostPaths is how many paths a text names at most.
const mostPaths = 20

// some returns a text with at most mostPaths of the paths, quoted, and the number of the others.
func some(paths []string) string {
	shown := paths[:min(len(paths), mostPaths)]
	quoted := make([]string, len(shown))
	for i, p := range shown {
		quoted[i] = holdfast.Quote(p)
	}
	text := strings.Join(quoted, ", ")
	if more := len(paths) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Found returns a text about the files that others changed between two turns. more is the number of those that are not
// in paths.
func Found(paths []string, more int) string {
	shown := paths[:min(len(paths), mostPaths)]
	text := "Since your last turn, others changed files of the workspace: " + some(shown)
	if more += len(paths) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "."
}

// Cut returns a text about a comparison after a power cut: which files were put back, and which may be older than the
// log says.
func Cut(target holdfast.CheckpointID, back, left []string) string {
	text := fmt.Sprintf("The machine lost power. The files were compared with checkpoint %s.", target)
	if len(back) > 0 {
		text += fmt.Sprintf(" Put back as they were then: %s.", some(back))
	}
	if len(left) > 0 {
		text += fmt.Sprintf(" Left as they are, perhaps older than the log says: %s.", some(left))
	}
	return text
}

// Losses returns a text about what a power cut may have taken from a directory that stays as it is. back are the paths
// of the home directory that were put back.
func Losses(dir string, target holdfast.CheckpointID, missing, empty, other, back []string) string {
	text := fmt.Sprintf("The machine lost power. The files of %s were compared with checkpoint %s, and stay as they are.", dir, target)
	for _, l := range []struct {
		what  string
		paths []string
	}{{"Missing", missing}, {"Empty", empty}, {"Different", other}, {"Put back in the home directory", back}} {
		if len(l.paths) > 0 {
			text += fmt.Sprintf(" %s: %s.", l.what, some(l.paths))
		}
	}
	return text
}

// Switched returns the notice that a directory has no checkpoints any more, and why; if why is nil, that it has some
// again.
func Switched(dir string, why error) holdfast.Notice {
	if why == nil {
		return holdfast.Notice{Code: holdfast.NoticeCheckpointsOn, Text: "The directory " + dir + " has checkpoints again."}
	}
	text := "The directory " + dir + " has no checkpoints from now on, so that no rewind can restore its files: " + why.Error() + "."
	if hint := holdfast.HintOf(why); hint != "" {
		text += " To have them again: " + hint + "."
	}
	return holdfast.Notice{Code: holdfast.NoticeCheckpointsOff, Level: "warning", Text: text}
}

// Unbegun returns the text for people that a rewind was interrupted before it changed any file.
func Unbegun(dir string, to holdfast.CheckpointID) string {
	return fmt.Sprintf("A rewind of the files of %s to checkpoint %s was interrupted before it began. No file was changed.", dir, to)
}

// Left returns a text about the files that a rewind did not change, because somebody else changed them during the
// rewind.
func Left(dir string, to, kept holdfast.CheckpointID, paths []string) string {
	return fmt.Sprintf("Somebody changed files of %s during the rewind to checkpoint %s. They stay as they are: %s. Checkpoint %s has the files from before the rewind.",
		dir, to, some(paths), kept)
}

// Unknown returns the error for a rewind of files that cannot be done: no checkpoint has the files, or nobody knows who
// changed them.
func Unknown(id holdfast.SessionID, dir, why string) error {
	return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "the files of the directory %s cannot go back to this checkpoint: %s", holdfast.Quote(dir), why).
		WithHint("a rewind without --files takes back the conversation alone; holdfast files restore %s PATH --at CHECKPOINT puts single files back; holdfast session fork %s --at CHECKPOINT goes on in a copy", id, id)
}

// Unstored returns the error for the checkpoint at the end of a turn whose snapshot failed. event is the number of the
// event that records the failure.
func Unstored(id holdfast.SessionID, turn, event int64) error {
	return holdfast.Errorf(holdfast.KindConflict, "checkpoint", "the files at the end of turn %d are not known: their snapshot failed (event #%d)", turn, event).
		WithHint("choose another checkpoint: holdfast session checkpoints %s", id)
}

// Removed returns the error for the end of a turn whose checkpoint was removed.
func Removed(id holdfast.SessionID, turn int64) error {
	return holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "the checkpoint at the end of turn %d was removed, by the rules for old checkpoints or by a purge", turn).
		WithHint("choose another checkpoint: holdfast session checkpoints %s", id)
}

// Unkept returns the error for restoring files into a directory that has no checkpoints now: overwritten files could
// not be brought back.
func Unkept(id holdfast.SessionID, dir string) error {
	return holdfast.Errorf(holdfast.KindConflict, "files.restore", "nothing was changed in %s: the directory has no checkpoints now, so what would be overwritten could not be brought back", holdfast.Quote(dir)).
		WithHint("holdfast files cat %s PATH --at CHECKPOINT prints a file as it was at a checkpoint", id)
}

// Conflicting returns the error of a rewind that would undo what others did.
func Conflicting(id holdfast.SessionID, dir string, paths []string) error {
	return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "nothing was changed in the directory %s: others have changed, since the checkpoint, files that the rewind would write or remove: %s",
		holdfast.Quote(dir), some(paths)).
		WithHint("holdfast session fork %s --at CHECKPOINT makes a copy with the files of that checkpoint; a rewind without --files takes back the conversation alone", id)
}

// Busy returns the error of a rewind into a directory whose files change at this moment.
func Busy(dir string) error {
	return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "nothing was changed in the directory %s: its files are being changed by others at this moment", holdfast.Quote(dir)).
		WithHint("try the rewind again")
}

// Gone returns the error of a session whose directory is gone.
func Gone(id holdfast.SessionID, dir string) error {
	return holdfast.Errorf(holdfast.KindConflict, "snapshot", "the directory %s of session %s is gone, or is not a directory any more", holdfast.Quote(dir), id).
		WithHint("put the directory back in its place and try again; holdfast session fork %s goes on in a copy of the newest checkpoint", id)
}

// Lost returns the error of a session whose workspace is gone, although calls may have changed it since the newest
// checkpoint.
func Lost(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindConflict, "snapshot", "the workspace of session %s is gone", id).
		WithHint("holdfast session pause %s, then resume: the newest snapshot is restored", id)
}

// Refused returns the error for replacing a directory that is not the session's alone.
func Refused(id holdfast.SessionID, dir string) error {
	return holdfast.Errorf(holdfast.KindConflict, "snapshot", "the directory %s of session %s does not belong to that session alone, so it is never replaced as a whole", holdfast.Quote(dir), id).
		WithHint("holdfast session rewind %s --to CHECKPOINT --files --yes writes and removes single files in the directory", id)
}

// LeftOut returns lines that say how much a diff leaves out. hidden is the number of changes that path rules hide.
func LeftOut(sum gitpatch.Summary, hidden int) (out []string) {
	for _, n := range []struct {
		count int
		what  string
	}{
		{hidden, "changes that the path rules of the session hide"},
		{sum.Refused, "changes of files whose names git refuses"},
		{sum.EmptyDirs, "empty directories"},
		{sum.Omitted, "contents of large files, so git apply refuses the patch"},
	} {
		if n.count > 0 {
			out = append(out, fmt.Sprintf("left out: %d %s", n.count, n.what))
		}
	}
	return out
}

// Checkpoint returns the name of a checkpoint for the notes of a diff.
func Checkpoint(cp holdfast.Checkpoint) string {
	switch {
	case cp.ID == "":
		return "an empty tree"
	case cp.Number == 0:
		return fmt.Sprintf("checkpoint %s (before the first turn)", cp.ID)
	}
	return fmt.Sprintf("checkpoint %s (#%d)", cp.ID, cp.Number)
}
