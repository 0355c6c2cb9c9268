package check

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// wantCommands asks about each program; the expected answers are in the map.
func wantCommands(t *testing.T, c *Checker, want map[string]bool) {
	t.Helper()
	for cmd, ok := range want {
		if v := c.Command(cmd); v.Allowed != ok {
			t.Errorf("%q: %+v", cmd, v)
		}
	}
}

func TestSDKL1_BothFormsOfTheCommandQuestion(t *testing.T) {
	c := checker(t, Settings{DeniedCommands: []string{"rm"}})
	for _, cmd := range []string{"rm x", " rm x", "\t\n rm x", "ls; rm", "  ls", "", "echo 'rm x'", "$X"} {
		err := c.CheckCommand(cmd)
		if (err == nil) != c.Command(cmd).Allowed {
			t.Errorf("%q: the verdict is %+v, the error %v", cmd, c.Command(cmd), err)
		}
		var d *DeniedError
		if err != nil && (!errors.As(err, &d) || !holdfast.IsKind(err, holdfast.KindDenied) || d.Tool != "Bash" || d.Code == "") {
			t.Errorf("%q: %v", cmd, err)
		}
	}
	if err := c.CheckCommand("cd x && rm -rf y"); err == nil || !strings.Contains(err.Error(), "rm") {
		t.Errorf("the command is not named: %v", err)
	}
}

func TestSDKL2_NoRulesAllowEveryCommand(t *testing.T) {
	wantCommands(t, checker(t, Settings{}), map[string]bool{"rm -rf /": true, "$X": true, "if (": true, "": true})
	wantCommands(t, checker(t, Settings{Network: &Network{}}), map[string]bool{"curl x": true})
}

func TestSDKL3_ConstructsNamesThenPaths(t *testing.T) {
	c := checker(t, Settings{DeniedCommands: []string{"rm"}, DeniedPaths: []string{"/etc"}})
	for cmd, code := range map[string]Code{
		"if (": CodeUnparsable, "rm /etc/x": CodeDeniedCommand, "$X /etc/x": CodeComputed, "cat /etc/x": CodeDeniedPath, "echo x | sh": CodeProgram, "PATH=/x ls": CodeRebinding,
	} {
		if v := c.Command(cmd); v.Allowed || v.Code != code {
			t.Errorf("%q: %+v, want %s", cmd, v, code)
		}
	}
}

func TestSDKL4_TheNameOfAPath(t *testing.T) {
	wantCommands(t, checker(t, Settings{DeniedCommands: []string{"rm"}}), map[string]bool{
		"/usr/bin/rm x": false, "./rm x": false, "../a/rm": false, "RM x": true, "/usr/bin/Rm": true, "rmdir x": true, "/rm/ls": true,
	})
}

func TestSDKL5_BackslashesAreRemoved(t *testing.T) {
	wantCommands(t, checker(t, Settings{DeniedCommands: []string{"rm"}}), map[string]bool{`\rm x`: false, `r\m x`: false, "r\\\nm x": false, `\ls`: true, `echo \rm`: true})
}

func TestSDKL6_QuotesAreRemoved(t *testing.T) {
	wantCommands(t, checker(t, Settings{DeniedCommands: []string{"rm"}}), map[string]bool{`"rm" x`: false, `'rm' x`: false, `r"m" x`: false, `r''m`: false, `$'rm' x`: false, `"ls"`: true, `echo "rm x"`: true})
}

func TestSDKL7_ProgramsOfShells(t *testing.T) {
	c := checker(t, Settings{DeniedCommands: []string{"rm"}})
	for _, sh := range []string{"bash", "sh", "zsh", "dash", "ksh", "ash", "mksh", "fish", "busybox sh"} {
		wantCommands(t, c, map[string]bool{sh + " -c 'rm x'": false, sh + " -c 'ls; /bin/rm x'": false})
	}
	wantCommands(t, c, map[string]bool{"bash -c 'ls'": true, "bash -ec 'rm x'": false, "sh -c 'echo \"rm\"'": true})
}

func TestSDKL8_SubstitutionsOfEveryKind(t *testing.T) {
	wantCommands(t, checker(t, Settings{DeniedCommands: []string{"rm"}}), map[string]bool{
		"echo $(rm x)": false, "echo `rm x`": false, "echo $(ls) $(echo $(rm x))": false, `echo "a $(rm x) b"`: false, "x=$(rm y)": false, "cat <(rm x)": false, "cat <<E\n$(rm x)\nE": false,
		"echo $(ls)": true, "echo '$(rm x)'": true, "echo \\$\\(rm\\)": true, "cat <<'E'\n$(rm x)\nE": true, "# $(rm x)": true,
	})
}

func TestSDKL9_WhatCannotBeReadIsRefused(t *testing.T) {
	for _, s := range []Settings{{DeniedCommands: []string{"rm"}}, {AllowedCommands: []string{"ls", "echo"}}, {DeniedPaths: []string{"/etc"}}} {
		wantCommands(t, checker(t, s), map[string]bool{"if (": false, "echo 'x": false, "ls &&": false, "echo $(": false, "ls": true})
	}
}

func TestSDKL10_OperandsInDeniedTrees(t *testing.T) {
	wantCommands(t, checker(t, Settings{DeniedPaths: []string{"/etc", "/project/secret"}}), map[string]bool{
		"cat /etc/passwd": false, "cat secret/x": false, "cd secret && cat x": false, "tar -C/etc -cf x .": false, "grep --file=/etc/x y": false, "cat < /etc/x": false, "cat s*/x": false, `cat "$X"`: false,
		"cat open/x": true, "echo /project/open": true, "ls > /dev/null": true,
	})
}

func TestSDKL11_OperandsOutsideOfWhatMayBeRead(t *testing.T) {
	wantCommands(t, checker(t, Settings{AllowedReadPaths: []string{"/project"}}), map[string]bool{
		"cat a/b": true, "cat /project/x": true, "cat ../x": false, "cat /etc/passwd": false, "cat ~/x": false, "cp /etc/x .": false, "ls 2>&1": true,
	})
}

func TestSDKL13_LiteralNestingIsVerified(t *testing.T) {
	wantCommands(t, checker(t, Settings{DeniedCommands: []string{"rm"}}), map[string]bool{
		`bash -c "bash -c 'ls'"`: true, `bash -c "bash -c 'rm x'"`: false, `bash -c "$X"`: false, `bash -c "ls $X"`: false, "echo ls | bash": false, "bash <<< 'ls'": true, "bash <<< 'rm x'": false, "eval 'ls'": true, `eval "$X"`: false,
	})
}

func TestSDKL14_EntriesWrittenAsPaths(t *testing.T) {
	deny, err := New(Settings{DeniedCommands: []string{"/opt/bin/rm"}}, Options{Cwd: "/project", FS: linkFS{}})
	if err != nil {
		t.Fatal(err)
	}
	wantCommands(t, deny, map[string]bool{"rm x": false, "/usr/bin/rm": false, "/opt/bin/rm": false, "ls": true})
	pin, err := New(Settings{AllowedCommands: []string{"/opt/bin/git"}}, Options{Cwd: "/project", FS: linkFS{}, SearchPath: []string{"/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	wantCommands(t, pin, map[string]bool{"/opt/bin/git x": true, "/tmp/git x": false, "git x": false, "./git": false})
}

func TestSDKB1ToB5_ListsOfPathsAndCommands(t *testing.T) {
	// SDK-B1, SDK-B2: empty is everything, otherwise these alone.
	wantPaths(t, checker(t, Settings{AllowedReadPaths: []string{"/a"}}), Write, map[string]bool{"/b": true})
	wantPaths(t, checker(t, Settings{AllowedReadPaths: []string{"/a"}}), Read, map[string]bool{"/a/x": true, "/b": false})
	wantPaths(t, checker(t, Settings{AllowedWritePaths: []string{"/a"}}), Read, map[string]bool{"/b": true})
	wantPaths(t, checker(t, Settings{AllowedWritePaths: []string{"/a"}}), Write, map[string]bool{"/a/x": true, "/b": false})
	if l := (Settings{AllowedReadPaths: []string{"/a"}}).Lint(); len(l) != 1 || !strings.Contains(l[0], "allowedWritePaths") {
		t.Errorf("%q", l)
	}
	// SDK-B3: both operations, against either list.
	c := checker(t, Settings{AllowedReadPaths: []string{"/a"}, AllowedWritePaths: []string{"/a"}, DeniedPaths: []string{"/a/x"}})
	wantPaths(t, c, Read, map[string]bool{"/a/x/y": false, "/a/z": true})
	wantPaths(t, c, Write, map[string]bool{"/a/x/y": false, "/a/z": true})
	// SDK-B4, SDK-B5: the denylist counts without an allow list only; an empty one allows nothing.
	wantCommands(t, checker(t, Settings{DeniedCommands: []string{"rm"}}), map[string]bool{"rm": false, "ls": true})
	wantCommands(t, checker(t, Settings{DeniedCommands: []string{"rm"}, AllowedCommands: []string{"rm"}}), map[string]bool{"rm": true, "ls": false})
	wantCommands(t, checker(t, Settings{AllowedCommands: []string{}}), map[string]bool{"ls": false, "true": false})
}

// TestSDKB18_EveryFieldCounts: settings that differ in one field, whichever, are not
// equal, and the text names the field.
func TestSDKB18_EveryFieldCounts(t *testing.T) {
	all, err := ParseSettings([]byte(`{"allowedReadPaths":["/a"],"allowedWritePaths":["/a"],"deniedPaths":["/b"],"deniedWritePaths":["/c"],"deniedCommands":["rm"],"allowedCommands":[],
		"allowNestedSandbox":true,"autoAllowBashIfSandboxed":true,"allowUnsandboxedCommands":true,"enableWeakerNestedSandbox":true,
		"ignoreViolations":{"file":["x"]},"network":{"allowLocalBinding":true},"ripgrep":{"command":"rg"}}`))
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(all)
	if v.NumField() != 13 {
		t.Errorf("%d fields", v.NumField())
	}
	for i := range v.NumField() {
		one := reflect.New(v.Type()).Elem()
		one.Field(i).Set(v.Field(i))
		s := one.Interface().(Settings)
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if s.Equal(Settings{}) || !s.Equal(one.Interface().(Settings)) {
			t.Errorf("%s does not count", name)
		}
		if text := s.String(); !strings.HasPrefix(text, name+": ") || strings.Count(text, ": ") != 1 && name != "ignoreViolations" && name != "network" {
			t.Errorf("%s reads as %s", name, text)
		}
	}
	if !all.Equal(all) {
		t.Error("settings differ from themselves")
	}
}
