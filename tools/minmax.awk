# Calls of functions, or ++ and --, in the arguments of Min() and Max(): those macros evaluate an argument twice.
{
	line = $0
	while (match(line, /(^|[^A-Za-z_0-9])(Min|Max)\(/)) {
		line = substr(line, RSTART + RLENGTH)
		depth = 1
		arg = ""
		for (i = 1; depth > 0; i++) {
			if (i > length(line) && (getline more) <= 0)
				break
			if (i > length(line))
				line = line " " more
			c = substr(line, i, 1)
			depth += (c == "(") - (c == ")")
			arg = arg c
		}
		rest = " " arg
		while (match(rest, /[^A-Za-z_0-9][a-z_][a-z_0-9]*\(/)) {
			name = substr(rest, RSTART + 1, RLENGTH - 2)
			rest = substr(rest, RSTART + RLENGTH - 1)
			if (name !~ /^(sizeof|strlen|lfirst|murmurhash32)$/)
				print "  " FILENAME ":" FNR ": " name "()"
		}
		if (arg ~ /\+\+|--/)
			print "  " FILENAME ":" FNR ": ++ or --"
	}
}
