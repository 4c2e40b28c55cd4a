from recollect.cli.commands import main

main()
