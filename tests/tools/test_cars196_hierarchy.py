import cars196_hierarchy
import pytest

from tfdml.evaluation import read_hierarchy

NAMES = {
    "001.AM_General_Hummer_SUV_2000": ("AM General", "SUV"),
    "009.Aston_Martin_V8_Vantage_Coupe_2012": ("Aston Martin", "Coupe"),
    "047.Buick_Regal_GS_2012": ("Buick",),
    "111.Ford_Ranger_SuperCab_2011": ("Ford", "Cab"),
    "161.Mercedes_Benz_300_Class_Convertible_1993": ("Mercedes-Benz", "Convertible"),
    "196.smart_fortwo_Convertible_2012": ("smart", "Convertible"),
    "155.Land_Rover_LR2_SUV_2012": ("Land Rover", "SUV"),
    "176.Rolls_Royce_Ghost_Sedan_2012": ("Rolls-Royce", "Sedan"),
}


@pytest.mark.parametrize("types", [False, True])
def test_reads_makes_and_types_off_the_names(types, tmp_path, capsys):
    for name in NAMES:
        (tmp_path / "cars" / name).mkdir(parents=True)
    out = tmp_path / "hierarchy.csv"
    cars196_hierarchy.main([str(tmp_path / "cars"), str(out), *(["--types"] if types else [])])
    assert f"8 classes below {8 + 5 * types} makes or types" in capsys.readouterr().out
    parents = read_hierarchy(out)
    for name, above in NAMES.items():
        assert parents[name] == (above if types else above[:1])
    assert parents["Land Rover"] == ("car",)
    assert "car" not in parents
