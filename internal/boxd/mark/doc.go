// Package mark knows the placeholders of boxes: the empty files and directories that boxd makes in a session's files
// where a path rule names something that does not exist. They have a modification time of their own, the mark, by which
// the driver finds and removes them when the box has ended, even if boxd was killed before it reported them, and by
// which checkpoints leave them out. It imports nothing of this module; jail, the driver local and snapshot/tree use it.
//
// An agent can give the mark to files of its own. The mark therefore counts only for what is empty: a file without
// content, or a directory in which there are only placeholders. Checkpoints have no such file of an agent, so a rewind
// neither removes it nor brings it back, and is refused in a directory of the user's own if it would write at its path.
// Nothing that has content is hidden in this way.
package mark
