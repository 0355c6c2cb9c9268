package check_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/sandbox/check"
)

// TestContinuedCommentsAreRefused: a comment that ends with a backslash ends with its line
// in a shell, so that the next line runs; the parser takes that line for a part of it.
func TestContinuedCommentsAreRefused(t *testing.T) {
	for _, program := range []string{
		"ls # \\\nrm", "ls # a\\\nrm x", "#\\\nrm", "echo `ls # \\\nrm`", "echo \"$(ls # \\\nrm\n)\"", "ls ;#\\\nrm",
		"case a in # \\\nb) rm ;; esac", "a=(1 # \\\nrm\n)", "ls #\\\\\\\nrm", "ls 'a' # it's \\\nrm", "if # \\\nrm; then :; fi",
		"ls \\\n# \\\nrm", "(ls)#\\\nrm", "for x in a # \\\ndo rm; done", "[[ a # \\\n]] && rm",
	} {
		if _, err := check.Analyze(program, "/workspace", "/home"); err == nil {
			t.Errorf("%q is read", program)
		}
	}
	for _, program := range []string{
		"ls \\\n -l", "git commit -m 'fix # 3' \\\n --amend", "git commit -m \"fix # 3\" \\\n --amend", "ls # a\nrm", "ls # a \\ b\nrm",
		"curl x#y \\\n -o f", "cat <<'E'\n# a \\\nb\nE", "cat <<E\n# a\nb\nE", "sed 's/ #/x/' a \\\n b", "echo $# \\\n x", "echo ${#x} \\\n x", "# a\nls \\\n -l",
	} {
		if _, err := check.Analyze(program, "/workspace", "/home"); err != nil {
			t.Errorf("%q: %v", program, err)
		}
	}
}
