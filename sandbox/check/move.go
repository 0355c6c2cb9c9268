package check

import (
	"path"
	"strings"
)

// destination returns the directories that cd with these arguments may lead to: a relative path has one for each
// possible working directory. It returns none if the directories are not known.
func (a *analyzer) destination(args []word) []string {
	to := word{text: a.homeDir}
	for i, w := range args {
		if w.kind == literal && (w.text == "-L" || w.text == "-P" || w.text == "-e" || w.text == "--") && i < len(args)-1 {
			continue
		}
		to = w
		break
	}
	if len(args) == 0 {
		home, ok := a.home()
		if !ok {
			return nil
		}
		to.text = home
	}
	if a.adrift || to.kind != literal || to.text == "" || strings.HasPrefix(to.text, "-") || strings.HasPrefix(to.text, "+") || a.assigned["CDPATH"] || a.functions["cd"] {
		return nil
	}
	if strings.HasPrefix(to.text, "/") {
		return a.left.place([]string{to.text})
	}
	var out []string
	for _, d := range a.cwds {
		// Keep `..` in the path: only the file system knows where it leads.
		out = append(out, join(d, to.text))
	}
	return a.left.place(out)
}

// move follows cd. Because cd may fail, the old directories remain possible too.
func (a *analyzer) move(first word, words []word) {
	to := a.destination(words)
	if baseName(first.text) != "cd" || to == nil {
		a.cwds = nil
		return
	}
	a.cwds = either(a.cwds, to)
	for i, d := range a.cwds {
		if !strings.Contains(d, "..") {
			a.cwds[i] = path.Clean(d)
		}
	}
}
