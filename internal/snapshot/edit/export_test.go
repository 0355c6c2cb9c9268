package edit

// Plain makes an Editor work as on a file system that has no renames but plain ones.
func (e *Editor) Plain() { e.plain = true }
